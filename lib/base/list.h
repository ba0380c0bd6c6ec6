// Lists whose links are in their elements: nothing is allocated and nothing owned.
//
// By each of its links an element is in one list at a time. It does not know whether it is in a
// list; the code that put it there must know. When it leaves, or its list is cleared, its links
// stay as they are.
#pragma once

#include <cstddef>
#include <utility>

#include "base/assert.h"

namespace rrdk::base {

// An element's position in a List.
template <typename T>
struct Links {
  T* next = nullptr;
  T* previous = nullptr;
};

// Iterates over the elements of a list. The next link is read before an element is returned, so the
// element may leave the list meanwhile, enter another list, or be destroyed.
template <typename T, auto kLink>
class Walk {
 public:
  explicit Walk(T* at) noexcept : at_(at), next_(at != nullptr ? after(at->*kLink) : nullptr) {}
  T& operator*() const noexcept { return *at_; }
  Walk& operator++() noexcept { return *this = Walk(next_); }
  bool operator==(std::nullptr_t) const noexcept { return at_ == nullptr; }

 private:
  static T* after(T* next) noexcept { return next; }
  static T* after(const Links<T>& links) noexcept { return links.next; }

  T* at_;
  T* next_;
};

// Last in, first out.
template <typename T, T* T::* kNext>
class Stack {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push(T& element) noexcept { element.*kNext = std::exchange(first_, &element); }
  T& pop() noexcept {
    RRDK_ASSERT(!empty());
    return *std::exchange(first_, first_->*kNext);
  }
  void clear() noexcept { first_ = nullptr; }
  Walk<T, kNext> begin() const noexcept { return Walk<T, kNext>(first_); }
  std::nullptr_t end() const noexcept { return nullptr; }

  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

 private:
  T* first_ = nullptr;
};

// First in, first out.
template <typename T, T* T::* kNext>
class Queue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_; }  // null if empty
  void push(T& element) noexcept {
    element.*kNext = nullptr;
    (first_ != nullptr ? last_->*kNext : first_) = &element;
    last_ = &element;
  }
  void push_front(T& element) noexcept {
    if (first_ == nullptr)
      last_ = &element;
    element.*kNext = std::exchange(first_, &element);
  }
  void push_front(Queue all) noexcept {
    if (all.empty())
      return;
    all.last_->*kNext = first_;
    if (first_ == nullptr)
      last_ = all.last_;
    first_ = all.first_;
  }
  T& pop() noexcept {
    RRDK_ASSERT(!empty());
    return *std::exchange(first_, first_->*kNext);
  }
  void clear() noexcept { first_ = nullptr; }
  Queue take() noexcept { return std::move(*this); }  // all elements; the queue is empty then
  Walk<T, kNext> begin() const noexcept { return Walk<T, kNext>(first_); }
  std::nullptr_t end() const noexcept { return nullptr; }

  Queue() = default;
  Queue(Queue&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), last_(other.last_) {}

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;  // valid if not empty()
};

// A list from whose middle elements can be removed.
template <typename T, Links<T> T::* kLinks>
class List {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_; }  // null if empty
  T* back() const noexcept { return last_; }    // null if empty
  void push(T& element) noexcept {
    element.*kLinks = {nullptr, last_};
    (last_ != nullptr ? (last_->*kLinks).next : first_) = &element;
    last_ = &element;
  }
  void push_front(T& element) noexcept {
    element.*kLinks = {first_, nullptr};
    (first_ != nullptr ? (first_->*kLinks).previous : last_) = &element;
    first_ = &element;
  }
  void remove(T& element) noexcept {
    auto [next, previous] = element.*kLinks;
    RRDK_ASSERT(previous != nullptr ? (previous->*kLinks).next == &element : first_ == &element);
    RRDK_ASSERT(next != nullptr ? (next->*kLinks).previous == &element : last_ == &element);
    (previous != nullptr ? (previous->*kLinks).next : first_) = next;
    (next != nullptr ? (next->*kLinks).previous : last_) = previous;
  }
  T& pop() noexcept {  // the first one
    RRDK_ASSERT(!empty());
    T& element = *first_;
    remove(element);
    return element;
  }
  List take() noexcept { return std::move(*this); }  // all elements; the list is empty then
  Walk<T, kLinks> begin() const noexcept { return Walk<T, kLinks>(first_); }
  std::nullptr_t end() const noexcept { return nullptr; }

  List() = default;
  List(List&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), last_(std::exchange(other.last_, nullptr)) {}

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace rrdk::base
