#include "base/list.h"

#include <gtest/gtest.h>

#include <array>
#include <type_traits>
#include <vector>

namespace rrdk::base {
namespace {

struct Node {
  int number = 0;
  Node* next = nullptr;
  Node* other_next = nullptr;
  Links<Node> links;
};
static_assert(std::is_trivially_copyable_v<Node> && std::is_standard_layout_v<Node>);

using Nodes = std::array<Node, 4>;
using NodeStack = Stack<Node, &Node::next>;
using NodeQueue = Queue<Node, &Node::next>;
using OtherQueue = Queue<Node, &Node::other_next>;
using NodeList = List<Node, &Node::links>;
using Numbers = std::vector<int>;
static_assert(sizeof(NodeStack) == sizeof(void*) && sizeof(NodeQueue) == 2 * sizeof(void*) &&
              sizeof(NodeList) == 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<NodeQueue> && !std::is_copy_assignable_v<NodeQueue> &&
              !std::is_copy_constructible_v<NodeList> && !std::is_copy_assignable_v<NodeList>);

Nodes numbered() {
  Nodes nodes;
  for (size_t i = 0; i < nodes.size(); ++i)
    nodes[i].number = static_cast<int>(i);
  return nodes;
}

template <typename Any>
Numbers numbers(const Any& list) {
  Numbers seen;
  for (const Node& node : list)
    seen.push_back(node.number);
  return seen;
}

Numbers backwards(const NodeList& list) {
  Numbers seen;
  for (const Node* node = list.back(); node != nullptr; node = node->links.previous)
    seen.push_back(node->number);
  return seen;
}

template <typename Any>
Numbers drained(Any& list) {
  Numbers seen;
  while (!list.empty())
    seen.push_back(list.pop().number);
  return seen;
}

template <typename Any>
void push_all(Any& list, Nodes& nodes) {
  for (Node& node : nodes)
    list.push(node);
}

template <typename Any>
class InOrder : public testing::Test {};
using InOrderTypes = testing::Types<NodeQueue, OtherQueue, NodeList>;
TYPED_TEST_SUITE(InOrder, InOrderTypes);

TYPED_TEST(InOrder, FirstInFirstOut) {
  Nodes nodes = numbered();
  TypeParam list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), nullptr);
  EXPECT_EQ(numbers(list), Numbers());
  push_all(list, nodes);
  EXPECT_FALSE(list.empty());
  EXPECT_EQ(list.front(), &nodes[0]);
  EXPECT_EQ(numbers(list), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(drained(list), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(list.front(), nullptr);
}

TYPED_TEST(InOrder, AtTheFront) {
  Nodes nodes = numbered();
  TypeParam list;
  list.push_front(nodes[1]);
  list.push(nodes[2]);
  list.push_front(nodes[0]);
  list.push(nodes[3]);
  EXPECT_EQ(drained(list), (Numbers{0, 1, 2, 3}));
  list.push_front(nodes[3]);  // it was drained, and has a last element again
  list.push(nodes[0]);
  EXPECT_EQ(drained(list), (Numbers{3, 0}));
}

TYPED_TEST(InOrder, PoppedElementsCanBePushedAgain) {
  Nodes nodes = numbered();
  TypeParam list;
  push_all(list, nodes);
  list.push(list.pop());
  EXPECT_EQ(numbers(list), (Numbers{1, 2, 3, 0}));
  list.push_front(list.pop());
  EXPECT_EQ(numbers(list), (Numbers{1, 2, 3, 0}));
  EXPECT_EQ(drained(list), (Numbers{1, 2, 3, 0}));
  list.push(nodes[2]);
  for (int i = 0; i < 3; ++i)
    list.push(list.pop());  // the only one
  EXPECT_EQ(drained(list), Numbers{2});
}

TYPED_TEST(InOrder, TakeEmptiesTheList) {
  Nodes nodes = numbered();
  TypeParam list;
  list.push(nodes[0]);
  list.push(nodes[1]);
  TypeParam all = list.take();
  EXPECT_TRUE(list.empty());
  list.push(nodes[2]);
  all.push(nodes[3]);
  EXPECT_EQ(drained(all), (Numbers{0, 1, 3}));
  EXPECT_EQ(drained(list), Numbers{2});
}

TYPED_TEST(InOrder, PoppedWhileALoopIsThere) {
  Nodes nodes = numbered();
  TypeParam list, odd;
  push_all(list, nodes);
  Numbers seen;
  for (Node& node : list) {
    seen.push_back(node.number);
    EXPECT_EQ(&list.pop(), &node);
    if (node.number % 2 != 0)
      odd.push(node);
    else
      node = Node();  // as if it had ended
  }
  EXPECT_EQ(seen, (Numbers{0, 1, 2, 3}));
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(drained(odd), (Numbers{1, 3}));
}

TEST(ListsThroughElements, InSeveralAtOnce) {
  Nodes nodes = numbered();
  NodeQueue queue;
  OtherQueue other;
  NodeList list;
  push_all(queue, nodes);
  for (Node& node : nodes) {
    other.push_front(node);
    list.push(node);
  }
  EXPECT_EQ(drained(other), (Numbers{3, 2, 1, 0}));
  list.remove(nodes[1]);
  EXPECT_EQ(numbers(queue), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(numbers(list), (Numbers{0, 2, 3}));
}

TEST(ListsThroughElements, ClearedQueue) {
  Nodes nodes = numbered();
  NodeQueue queue;
  push_all(queue, nodes);
  queue.clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(numbers(queue), Numbers());
  queue.push(nodes[3]);
  queue.push(nodes[1]);
  EXPECT_EQ(drained(queue), (Numbers{3, 1}));
}

TEST(ListsThroughElements, StackIsLastInFirstOut) {
  Nodes nodes = numbered();
  NodeStack stack;
  EXPECT_TRUE(stack.empty());
  push_all(stack, nodes);
  EXPECT_EQ(numbers(stack), (Numbers{3, 2, 1, 0}));
  stack.push(stack.pop());
  EXPECT_EQ(drained(stack), (Numbers{3, 2, 1, 0}));
  EXPECT_TRUE(stack.empty());
}

TEST(ListsThroughElements, LeaveFromAnywhere) {
  Nodes nodes = numbered();
  for (size_t left = 0; left < nodes.size(); ++left) {
    NodeList list;
    push_all(list, nodes);
    list.remove(nodes[left]);
    Numbers expected = {0, 1, 2, 3};
    std::erase(expected, static_cast<int>(left));
    EXPECT_EQ(numbers(list), expected);
    list.push(nodes[left]);
    expected.push_back(static_cast<int>(left));
    EXPECT_EQ(numbers(list), expected);
    EXPECT_EQ(backwards(list), Numbers(expected.rbegin(), expected.rend()));
  }
}

TEST(ListsThroughElements, TheOnlyOneLeaves) {
  Nodes nodes = numbered();
  NodeList list;
  list.push_front(nodes[0]);
  EXPECT_EQ(list.back(), &nodes[0]);
  list.remove(nodes[0]);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.back(), nullptr);
  list.push(nodes[1]);
  EXPECT_EQ(list.front(), &nodes[1]);
  EXPECT_EQ(list.back(), &nodes[1]);
}

TEST(ListsThroughElements, RemovedWhileALoopIsThere) {
  Nodes nodes = numbered();
  NodeList list;
  push_all(list, nodes);
  for (Node& node : list) {
    if (node.number != 2)
      list.remove(node);
  }
  EXPECT_EQ(numbers(list), Numbers{2});
  EXPECT_EQ(backwards(list), Numbers{2});
}

}  // namespace
}  // namespace rrdk::base
