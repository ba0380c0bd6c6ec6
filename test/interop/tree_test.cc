#include "tree.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace rrdk::interop {
namespace {

using namespace std::string_view_literals;

constexpr uint64_t kInstance = 0x1234567890abcdef;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class TreeTest : public ::testing::Test {
 protected:
  Node& make(Node& folder, std::string_view name, FileType type = FileType::kRegular) {
    Node* node = nullptr;
    std::string_view target = type == FileType::kLink ? "target" : "";
    EXPECT_EQ(tree_.make(folder, name, type, {}, target, node), Status::kOk) << name;
    return *node;
  }
  Status try_make(std::string_view name) {
    Node* node = nullptr;
    return tree_.make(root_, name, FileType::kRegular, {}, "", node);
  }
  Status look_up(Node& folder, std::string_view name) {
    Node* node = nullptr;
    return tree_.look_up(folder, name, node);
  }
  Status find(const FileHandle& handle) {
    Node* node = nullptr;
    return tree_.find(handle, node);
  }
  std::string text(const Node& node, uint64_t offset, size_t length) {
    std::string result(length, '?');
    node.data.read(offset, std::as_writable_bytes(std::span(result)));
    return result;
  }

  Tree tree_{{.bytes = 16 * FileData::kBlock, .names = 20}, kInstance};
  Node& root_ = tree_.root();
};

TEST_F(TreeTest, HandlesLiveAsLongAsTheirFiles) {
  FileHandle handle = tree_.handle_of(make(root_, "a"));
  EXPECT_EQ(find(handle), Status::kOk);
  ASSERT_EQ(tree_.remove(root_, "a"), Status::kOk);
  EXPECT_EQ(find(handle), Status::kStale);
  FileHandle again = tree_.handle_of(make(root_, "a"));
  EXPECT_FALSE(handle == again);
  EXPECT_EQ(find(handle), Status::kStale);
  EXPECT_EQ(find(again), Status::kOk);
}

TEST_F(TreeTest, TheRootOfTheSameFileSystemIsTheSameAfterARestart) {
  Tree before({}, kInstance, 5);
  Node* file = nullptr;
  ASSERT_EQ(before.make(before.root(), "a", FileType::kRegular, {}, {}, file), Status::kOk);
  Tree after({}, kInstance + 1, 5);
  Node* found = nullptr;
  ASSERT_EQ(after.find(before.handle_of(before.root()), found), Status::kOk);
  EXPECT_EQ(found, &after.root());
  Node* other = nullptr;
  ASSERT_EQ(after.make(after.root(), "b", FileType::kRegular, {}, {}, other), Status::kOk);
  EXPECT_EQ(after.find(before.handle_of(*file), found), Status::kStale);
}

TEST_F(TreeTest, HandlesThatWereNeverGiven) {
  FileHandle root = tree_.handle_of(root_);
  std::vector<std::byte> raw(root.bytes().begin(), root.bytes().end());
  for (size_t length = 0; length < raw.size(); ++length)
    EXPECT_EQ(find(FileHandle(std::span(raw).first(length))), Status::kBadHandle) << length;
  std::array<std::byte, nfs3::kMaxHandle> longest = {};
  EXPECT_EQ(find(FileHandle(longest)), Status::kBadHandle);
  for (uint64_t id : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    std::memcpy(raw.data() + 16, &id, sizeof id);
    EXPECT_EQ(find(FileHandle(raw)), Status::kBadHandle) << id;
  }
  raw[0] ^= std::byte{1};
  EXPECT_EQ(find(FileHandle(raw)), Status::kBadHandle);
  Tree other({}, kInstance + 1);
  EXPECT_EQ(find(other.handle_of(other.root())), Status::kStale);
}

TEST_F(TreeTest, RejectsInvalidNames) {
  for (std::string_view name : {""sv, "/"sv, "a/b"sv, "a\0b"sv, "\0"sv}) {
    EXPECT_EQ(try_make(name), Status::kAcces);
    EXPECT_EQ(look_up(root_, name), Status::kAcces);
    EXPECT_EQ(tree_.remove(root_, name), Status::kAcces);
    EXPECT_EQ(tree_.remove_folder(root_, name), Status::kAcces);
    make(root_, "old");
    EXPECT_EQ(tree_.rename(root_, "old", root_, name), Status::kAcces);
    EXPECT_EQ(tree_.rename(root_, name, root_, "old"), Status::kAcces);
    ASSERT_EQ(tree_.remove(root_, "old"), Status::kOk);
  }
  EXPECT_EQ(try_make(std::string(255, 'n')), Status::kOk);
  EXPECT_EQ(try_make(std::string(256, 'n')), Status::kNameTooLong);
  EXPECT_EQ(look_up(root_, std::string(256, 'n')), Status::kNameTooLong);
  EXPECT_EQ(try_make("."), Status::kExist);
  EXPECT_EQ(try_make(".."), Status::kExist);
}

TEST_F(TreeTest, DotsAreFolders) {
  Node& sub = make(root_, "sub", FileType::kDirectory);
  Node* node = nullptr;
  ASSERT_EQ(tree_.look_up(sub, ".", node), Status::kOk);
  EXPECT_EQ(node, &sub);
  ASSERT_EQ(tree_.look_up(sub, "..", node), Status::kOk);
  EXPECT_EQ(node, &root_);
  ASSERT_EQ(tree_.look_up(root_, "..", node), Status::kOk);
  EXPECT_EQ(node, &root_);
  EXPECT_EQ(tree_.remove(root_, ".."), Status::kIsDir);
  EXPECT_EQ(tree_.remove_folder(sub, "."), Status::kInval);
  EXPECT_EQ(tree_.remove_folder(sub, ".."), Status::kExist);
  EXPECT_EQ(tree_.rename(sub, ".", root_, "x"), Status::kInval);
}

TEST_F(TreeTest, CookiesKeepTheirPlace) {
  for (const char* name : {"a", "b", "c"})
    make(root_, name);
  uint64_t at_b = root_.folder->cookies.at("b");
  ASSERT_EQ(tree_.remove(root_, "b"), Status::kOk);
  make(root_, "b");
  make(root_, "d");
  // Behind the removed name come those made before and after it, each once.
  std::string behind;
  for (auto it = root_.folder->by_cookie.upper_bound(at_b); it != root_.folder->by_cookie.end();
       ++it)
    behind += it->second.name;
  EXPECT_EQ(behind, "cbd");
  EXPECT_EQ(tree_.check_cookie(root_, at_b, kInstance), Status::kOk);
}

TEST_F(TreeTest, CookiesThatWereNeverGiven) {
  make(root_, "a");
  uint64_t last = root_.folder->next_cookie - 1;
  EXPECT_EQ(tree_.check_cookie(root_, 0, 0), Status::kOk);
  EXPECT_EQ(tree_.check_cookie(root_, 0, 99), Status::kOk);
  EXPECT_EQ(tree_.check_cookie(root_, last, kInstance), Status::kOk);
  EXPECT_EQ(tree_.check_cookie(root_, last, kInstance - 1), Status::kBadCookie);
  EXPECT_EQ(tree_.check_cookie(root_, last + 1, kInstance), Status::kBadCookie);
  EXPECT_EQ(tree_.check_cookie(root_, UINT64_MAX, kInstance), Status::kBadCookie);
  EXPECT_EQ(tree_.check_cookie(make(root_, "f"), 0, 0), Status::kNotDir);
}

TEST_F(TreeTest, NamesAreBounded) {
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(try_make(std::to_string(i)), Status::kOk);
  EXPECT_EQ(try_make("more"), Status::kNoSpc);
  Node* file = nullptr;
  ASSERT_EQ(tree_.look_up(root_, "0", file), Status::kOk);
  EXPECT_EQ(tree_.link(*file, root_, "more"), Status::kNoSpc);
  EXPECT_EQ(tree_.rename(root_, "0", root_, "moved"), Status::kOk);  // needs no space
  ASSERT_EQ(tree_.remove(root_, "1"), Status::kOk);
  EXPECT_EQ(try_make("more"), Status::kOk);
}

TEST_F(TreeTest, BytesAreBounded) {
  constexpr uint64_t kAll = 16 * FileData::kBlock;
  Node& file = make(root_, "f");
  EXPECT_EQ(tree_.check_write(file, 0, kAll), Status::kOk);
  EXPECT_EQ(tree_.check_write(file, 0, kAll + 1), Status::kNoSpc);
  EXPECT_EQ(tree_.check_write(file, 1, kAll), Status::kNoSpc);  // touches one block more
  EXPECT_EQ(tree_.check_write(file, UINT64_MAX, 1), Status::kFBig);
  EXPECT_EQ(tree_.check_write(file, 1, UINT64_MAX), Status::kFBig);
  tree_.write(file, 0, bytes(std::string(kAll, 'x')));
  EXPECT_EQ(tree_.bytes_used(), kAll);
  EXPECT_EQ(tree_.check_write(file, 5, 100), Status::kOk);  // over what is there
  EXPECT_EQ(tree_.check_write(file, kAll, 1), Status::kNoSpc);
  Node* link = nullptr;
  EXPECT_EQ(tree_.make(root_, "l", FileType::kLink, {}, "target", link), Status::kNoSpc);
  ASSERT_EQ(tree_.set_attributes(file, {.size = 1}), Status::kOk);
  EXPECT_EQ(tree_.bytes_used(), uint64_t{FileData::kBlock});
  ASSERT_EQ(tree_.remove(root_, "f"), Status::kOk);
  EXPECT_EQ(tree_.bytes_used(), 0u);
}

TEST_F(TreeTest, ContentsHoldHolesAndCuts) {
  Node& file = make(root_, "f");
  tree_.write(file, 4094, bytes("abcd"));
  EXPECT_EQ(file.size(), 4098u);
  EXPECT_EQ(text(file, 4092, 6), "\0\0abcd"sv);
  ASSERT_EQ(tree_.set_attributes(file, {.size = 4095}), Status::kOk);
  ASSERT_EQ(tree_.set_attributes(file, {.size = 10000}), Status::kOk);
  EXPECT_EQ(text(file, 4093, 5), "\0a\0\0\0"sv);
  EXPECT_EQ(text(file, 9990, 10), std::string(10, '\0'));
  EXPECT_EQ(tree_.set_attributes(file, {.size = UINT64_MAX}), Status::kFBig);
  EXPECT_EQ(tree_.set_attributes(root_, {.size = 0}), Status::kInval);
}

TEST_F(TreeTest, LinksCount) {
  Node& file = make(root_, "f");
  FileHandle handle = tree_.handle_of(file);
  ASSERT_EQ(tree_.link(file, root_, "g"), Status::kOk);
  EXPECT_EQ(file.links, 2u);
  EXPECT_EQ(tree_.rename(root_, "f", root_, "g"), Status::kOk);  // both stay
  EXPECT_EQ(look_up(root_, "f"), Status::kOk);
  ASSERT_EQ(tree_.remove(root_, "f"), Status::kOk);
  EXPECT_EQ(find(handle), Status::kOk);
  ASSERT_EQ(tree_.remove(root_, "g"), Status::kOk);
  EXPECT_EQ(find(handle), Status::kStale);
  EXPECT_EQ(tree_.link(make(root_, "d", FileType::kDirectory), root_, "e"), Status::kInval);
}

TEST_F(TreeTest, FoldersMove) {
  Node& a = make(root_, "a", FileType::kDirectory);
  Node& b = make(a, "b", FileType::kDirectory);
  make(b, "f");
  EXPECT_EQ(root_.links, 3u);
  EXPECT_EQ(a.links, 3u);
  EXPECT_EQ(tree_.rename(root_, "a", b, "a"), Status::kInval);  // into itself
  EXPECT_EQ(tree_.rename(root_, "a", a, "a"), Status::kInval);
  ASSERT_EQ(tree_.rename(a, "b", root_, "b"), Status::kOk);
  EXPECT_EQ(root_.links, 4u);
  EXPECT_EQ(a.links, 2u);
  Node* parent = nullptr;
  ASSERT_EQ(tree_.look_up(b, "..", parent), Status::kOk);
  EXPECT_EQ(parent, &root_);
  EXPECT_EQ(tree_.rename(root_, "a", root_, "b"), Status::kNotEmpty);
  EXPECT_EQ(tree_.rename(b, "f", root_, "a"), Status::kExist);
  EXPECT_EQ(tree_.rename(root_, "a", b, "f"), Status::kExist);
  FileHandle gone = tree_.handle_of(a);
  EXPECT_EQ(tree_.rename(root_, "b", root_, "a"), Status::kOk);  // over an empty one
  EXPECT_EQ(find(gone), Status::kStale);
  EXPECT_EQ(root_.links, 3u);
  EXPECT_EQ(tree_.remove_folder(root_, "a"), Status::kNotEmpty);
  ASSERT_EQ(tree_.remove(b, "f"), Status::kOk);
  EXPECT_EQ(tree_.remove_folder(root_, "a"), Status::kOk);
  EXPECT_EQ(root_.links, 2u);
  EXPECT_EQ(tree_.names_used(), 0u);
}

TEST_F(TreeTest, WrongTypes) {
  Node& file = make(root_, "f");
  Node& link = make(root_, "l", FileType::kLink);
  Node* node = nullptr;
  EXPECT_EQ(look_up(file, "x"), Status::kNotDir);
  EXPECT_EQ(tree_.make(link, "x", FileType::kRegular, {}, "", node), Status::kNotDir);
  EXPECT_EQ(tree_.remove_folder(root_, "f"), Status::kNotDir);
  EXPECT_EQ(tree_.check_write(link, 0, 1), Status::kInval);
  EXPECT_EQ(tree_.check_write(root_, 0, 1), Status::kInval);
  EXPECT_EQ(tree_.make(root_, "x", FileType::kLink, {}, "a\0b"sv, node), Status::kAcces);
  EXPECT_EQ(tree_.make(root_, "x", FileType::kLink, {}, std::string(4097, 't'), node),
            Status::kNameTooLong);
}

}  // namespace
}  // namespace rrdk::interop
