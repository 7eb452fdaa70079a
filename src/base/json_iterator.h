// JsonIterator: goes over the elements of a JSON array, the values of an object, or the one scalar.
//
// Ends when the array or object gets longer or shorter. Dereferencing an end is an Error, as Json::element says.
#pragma once

#include <cstddef>
#include <iterator>

namespace moraine {

class Json;

// `Owner` is Json or const Json.
template <class Owner>
class JsonIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Json;
  using difference_type = std::ptrdiff_t;
  using pointer = Owner*;
  using reference = Owner&;

  JsonIterator() = default;
  JsonIterator(Owner* owner, size_t index) : owner_(owner), index_(index) {}
  Owner& operator*() const { return owner_->element(index_); }
  Owner* operator->() const { return &owner_->element(index_); }
  JsonIterator& operator++() { return ++index_, *this; }
  JsonIterator operator++(int) { return JsonIterator(owner_, index_++); }
  bool operator==(const JsonIterator& other) const { return index_ == other.index_; }
  size_t index() const { return index_; }

 private:
  Owner* owner_ = nullptr;
  size_t index_ = 0;
};

}  // namespace moraine
