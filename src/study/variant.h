// Variant: one of the configs that a study compares, as what it changes of the base.
//
//   --vary model.attention=cca,gqa            one factor: a variant for each value
//   --variant "wide: model.hidden=512, model.heads=8"     one variant, by name
//
// Commas inside brackets, braces and quotes belong to a value.
//
// Errors: kInvalidArgument: what was given, and what is wanted.
#pragma once

#include <string>
#include <vector>

namespace moraine {

struct Variant {
  std::string name;                      // "base", "attention=gqa", "wide"
  std::vector<std::string> assignments;  // key=value
};

// The base first, then those of `vary`, then those of `named`. No two have one name or one folder.
std::vector<Variant> read_variants(const std::vector<std::string>& vary,
                                   const std::vector<std::string>& named);

// Its name as that of a folder: letters, digits, '.', '-' and '='; others become '_'.
std::string variant_folder(const Variant& variant);

}  // namespace moraine
