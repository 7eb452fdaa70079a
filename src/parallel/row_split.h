// RowSplit: which member computes which rows of a layer's experts, where every member has all rows of a step.
//
//   home of expert e   member m of P holds [m E / P, (m+1) E / P)
//   guest              an expert whose weights a member has too, in one of its C slots
//   group              one expert at one member: of member m its own experts ascending, then its slots
//   split              the rows of an expert, in order, are cut into pieces, one for each group that has it
//
// Guests change seldom, as weights must travel. The split is made anew for each layer of each step, from the rows
// that are there: every member knows them, so all make the same one, and nobody is told. A row of an expert has the
// same bits whoever computes it (kernels/linear.h), so nothing depends on guests or split.
//
// The split: experts at one member are that member's work. The others, largest first, are cut into blocks, and each
// goes to who ends first with it; then all of them once more, among what the others became. A group's first block has
// kSplitRows, those after it 4; neither less than 1/64 of a member's mean rows. A group that has rows counts kOpenRows
// at least, for its weights are read. So few rows of an expert stay together, and go to whoever has less to do.
//
// Order: integers and fixed ties: all members split alike.
// Cost:  E additions, and 2 * 64 * P comparisons for each member that has a shared expert, at most; no bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace moraine {

constexpr int64_t kSplitRows = 16;  // rows that stand together in a product
// What reading an expert's weights costs, in rows. Products hide it when there are more (docs/expert_placement.md).
constexpr int64_t kOpenRows = 8;

// Of a group.
inline int64_t work_of_rows(int64_t rows) { return rows == 0 ? 0 : std::max(rows, kOpenRows); }

struct SplitShape {
  int64_t experts = 0;          // E
  int64_t members = 1;          // P <= E
  int64_t slots = 0;            // C
  std::vector<int> hosts = {};  // of each member: guests stay on their home's host; empty: anywhere

  int64_t begin(int64_t member) const { return member * experts / members; }
  int64_t held(int64_t member) const { return begin(member + 1) - begin(member); }
  int64_t home(int64_t expert) const { return ((expert + 1) * members - 1) / experts; }
  int64_t groups() const { return experts + members * slots; }  // G
  int64_t group_begin(int64_t member) const { return begin(member) + member * slots; }
  bool may_serve(int64_t member, int64_t expert) const;  // by host
};

// Of one layer.
struct GuestTable {
  std::vector<int32_t> expert;  // [P, C] in each slot, or -1

  friend bool operator==(const GuestTable&, const GuestTable&) = default;
};

GuestTable no_guests(const SplitShape& shape);
int64_t count_guests(const GuestTable& table);
// Slots that `next` fills with another expert than `now`.
int64_t count_new_guests(const GuestTable& now, const GuestTable& next);
// An expert is in a slot once, not at home, and where its host allows it.
bool is_valid(const SplitShape& shape, const GuestTable& table);

// A table as the split reads it.
struct SplitRoutes {
  struct Holder {
    int32_t member, group;
  };
  struct Shared {
    int64_t expert;
    std::vector<Holder> holders;  // the home first
  };
  std::vector<int32_t> home_group;  // [E]
  std::vector<int32_t> shared_of;   // [E] its place in `shared`, or -1
  std::vector<Shared> shared;       // experts that are guests somewhere, ascending
};
SplitRoutes split_routes(const SplitShape& shape, const GuestTable& table);

struct RowSplit {
  std::vector<int64_t> rows;  // [G]
  std::vector<int64_t> work;  // [P] sum of work_of_rows of the groups, times cost
};

// rows: [E]. cost: [P] of a row at a member, in any unit, > 0.
void split_rows(const SplitShape& shape, const SplitRoutes& routes, std::span<const int64_t> rows,
                std::span<const int64_t> cost, RowSplit* split);
// The same at random: a function of index.
void shuffle_rows(const SplitShape& shape, const SplitRoutes& routes, std::span<const int64_t> rows,
                  uint64_t index, RowSplit* split);

// Each row's group, in the order of the rows: expert E (skip) becomes group G.
void rows_to_groups(const SplitShape& shape, const SplitRoutes& routes, const RowSplit& split,
                    std::span<const int32_t> expert, std::span<int32_t> group);

}  // namespace moraine
