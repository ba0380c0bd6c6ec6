// The procedures, called as a client would and as no client would: the parts of replies, and
// invalid arguments.
#include "nfs_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nfs3_decode.h"
#include "nfs_encode.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/nfs3.h"

namespace rrdk::interop {
namespace {

using Args = std::function<void(Encoder&)>;

class NfsProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ensure_eal());
    memory_ = Memory::create({.hugepages = HugepagePolicy::kNever}).value();
    runtime_ = Runtime::create(*memory_, {}).value();
    server_ = Server::create(*runtime_).value();
    ASSERT_TRUE(server_->add_service(nfs_service(tree_)));
    auto uri = server_->listen("shm:@rrdk-nfs-program-" + std::to_string(getpid()));
    ASSERT_TRUE(uri) << uri.error().message;
    client_ = Client::create(*runtime_).value();
    connection_ = client_->connect(*uri).value();
    call_ = std::make_unique<Call>(*connection_);
    root_ = tree_.handle_of(tree_.root());
  }
  void TearDown() override {
    call_.reset();
    connection_.reset();
    client_.reset();
    server_.reset();
    runtime_.reset();
    EXPECT_TRUE(memory_->whole());
  }

  CallStatus call(uint32_t procedure, const Args& args, uint32_t reply = 0) {
    args(call_->begin(nfs3::kBinding, procedure));
    call_->expect_reply(reply);
    return call_->submit_and_wait();
  }
  // The NFS status of a call that succeeds as an RPC.
  Status status(uint32_t procedure, const Args& args, uint32_t reply = 0) {
    EXPECT_EQ(call(procedure, args, reply), CallStatus::kOk) << procedure;
    return static_cast<Status>(results().get_u32());
  }
  Decoder& results() { return call_->results(); }

  static void put_place(Encoder& to, const FileHandle& folder, std::string_view name) {
    to.put_opaque(folder.bytes());
    to.put_string(name);
  }
  static void put_no_attributes(Encoder& to) {
    for (int i = 0; i < 6; ++i)
      to.put_u32(0);
  }
  FileHandle make_file(std::string_view name) {
    Node* node = nullptr;
    EXPECT_EQ(tree_.make(tree_.root(), name, FileType::kRegular, {}, "", node), Status::kOk);
    return tree_.handle_of(*node);
  }
  Status create(std::string_view name, nfs3::CreateMode mode, uint64_t verifier = 0) {
    return status(nfs3::kCreate, [&](Encoder& to) {
      put_place(to, root_, name);
      to.put_u32(static_cast<uint32_t>(mode));
      if (mode == nfs3::CreateMode::kExclusive)
        to.put_u64(verifier);
      else
        put_no_attributes(to);
    });
  }

  Tree tree_{{.bytes = 1 << 20, .names = 3000}, 77};
  FileHandle root_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<ClientConnection> connection_;
  std::unique_ptr<Call> call_;
};

TEST_F(NfsProgram, ArgumentsThatEndEarlyOrLateAreGarbage) {
  for (const ProcedureBinding& procedure : nfs3::kBinding.procedures) {
    if (procedure.procedure == nfs3::kNull)
      continue;
    EXPECT_EQ(call(procedure.procedure, [](Encoder&) {}), CallStatus::kGarbageArgs)
        << procedure.name;
    auto too_many = [](Encoder& to) {
      for (int i = 0; i < 200; ++i)
        to.put_u32(0);
    };
    EXPECT_EQ(call(procedure.procedure, too_many), CallStatus::kGarbageArgs) << procedure.name;
  }
  EXPECT_EQ(call(22, [](Encoder&) {}), CallStatus::kProcUnavail);
}

TEST_F(NfsProgram, LengthsBeyondTheirBoundsAreGarbage) {
  for (uint32_t length : {65u, 4096u, 0x7fffffffu, 0xfffffffcu, UINT32_MAX}) {
    auto handle = [&](Encoder& to) {
      to.put_u32(length);
      for (int i = 0; i < 20; ++i)
        to.put_u32(0);
    };
    EXPECT_EQ(call(nfs3::kGetattr, handle), CallStatus::kGarbageArgs) << length;
    auto name = [&](Encoder& to) {
      to.put_opaque(root_.bytes());
      to.put_u32(length);
    };
    EXPECT_EQ(call(nfs3::kLookup, name), CallStatus::kGarbageArgs) << length;
    auto data = [&](Encoder& to) {
      to.put_opaque(root_.bytes());
      to.put_u64(0);
      to.put_u32(length);
      to.put_u32(0);
      to.put_u32(length);
    };
    EXPECT_EQ(call(nfs3::kWrite, data), CallStatus::kGarbageArgs) << length;
  }
}

TEST_F(NfsProgram, ValuesThatNoUnionHasAreGarbage) {
  auto setattr = [&](int word, uint32_t value) {
    return call(nfs3::kSetattr, [&](Encoder& to) {
      to.put_opaque(root_.bytes());
      for (int i = 0; i < 7; ++i)  // sattr3 and the guard
        to.put_u32(i == word ? value : 0);
    });
  };
  EXPECT_EQ(setattr(0, 0), CallStatus::kOk);
  EXPECT_EQ(setattr(0, 2), CallStatus::kGarbageArgs);  // set_it: no boolean
  EXPECT_EQ(setattr(4, 3), CallStatus::kGarbageArgs);  // set_atime: no time_how
  EXPECT_EQ(setattr(6, 2), CallStatus::kGarbageArgs);
  auto create_mode = [&](Encoder& to) {
    put_place(to, root_, "x");
    to.put_u32(3);
    put_no_attributes(to);
  };
  EXPECT_EQ(call(nfs3::kCreate, create_mode), CallStatus::kGarbageArgs);
  auto stable = [&](Encoder& to) {
    to.put_opaque(root_.bytes());
    to.put_u64(0);
    to.put_u32(0);
    to.put_u32(3);
    to.put_u32(0);
  };
  EXPECT_EQ(call(nfs3::kWrite, stable), CallStatus::kGarbageArgs);
}

TEST_F(NfsProgram, InvalidHandlesAreErrorsInEveryProcedure) {
  FileHandle stale = make_file("gone");
  ASSERT_EQ(tree_.remove(tree_.root(), "gone"), Status::kOk);
  const std::byte junk[5] = {};
  for (const auto& [handle, expected] :
       {std::pair{FileHandle(junk), Status::kBadHandle}, std::pair{stale, Status::kStale}}) {
    auto alone = [&](Encoder& to) { to.put_opaque(handle.bytes()); };
    for (uint32_t procedure :
         {nfs3::kGetattr, nfs3::kReadlink, nfs3::kFsstat, nfs3::kFsinfo, nfs3::kPathconf})
      EXPECT_EQ(status(procedure, alone), expected) << procedure;
    auto place = [&](Encoder& to) { put_place(to, handle, "x"); };
    for (uint32_t procedure : {nfs3::kLookup, nfs3::kRemove, nfs3::kRmdir})
      EXPECT_EQ(status(procedure, place), expected) << procedure;
    auto rename = [&](Encoder& to) {
      put_place(to, root_, "x");
      put_place(to, handle, "y");
    };
    EXPECT_EQ(status(nfs3::kRename, rename), expected);
    auto link = [&](Encoder& to) {
      to.put_opaque(handle.bytes());
      put_place(to, root_, "y");
    };
    EXPECT_EQ(status(nfs3::kLink, link), expected);
    auto listing = [&](Encoder& to) {
      to.put_opaque(handle.bytes());
      to.put_u64(0);
      to.put_u64(0);
      to.put_u32(4096);
    };
    EXPECT_EQ(status(nfs3::kReaddir, listing, 4096), expected);
    auto range = [&](Encoder& to) {
      to.put_opaque(handle.bytes());
      to.put_u64(0);
      to.put_u32(100);
    };
    EXPECT_EQ(status(nfs3::kRead, range, 100), expected);
    EXPECT_EQ(status(nfs3::kCommit, range), expected);
  }
}

TEST_F(NfsProgram, ReadsAtTheEdges) {
  FileHandle file = make_file("f");
  Node* node = nullptr;
  ASSERT_EQ(tree_.find(file, node), Status::kOk);
  tree_.write(*node, 0, std::as_bytes(std::span(std::string_view("0123456789"))));
  struct {
    uint64_t offset;
    uint32_t count, got;
    bool eof;
  } cases[] = {{0, 4, 4, false}, {0, 10, 10, true}, {8, 100, 2, true},
               {10, 1, 0, true}, {11, 1, 0, true},  {UINT64_MAX, UINT32_MAX, 0, true},
               {3, 0, 0, false}};
  for (const auto& c : cases) {
    auto args = [&](Encoder& to) {
      to.put_opaque(file.bytes());
      to.put_u64(c.offset);
      to.put_u32(c.count);
    };
    ASSERT_EQ(status(nfs3::kRead, args, 200), Status::kOk);
    EXPECT_EQ(nfs3::get_optional_attributes(results())->size, 10u);
    EXPECT_EQ(results().get_u32(), c.got) << c.offset;
    EXPECT_EQ(results().get_bool(), c.eof) << c.offset;
    EXPECT_EQ(results().get_item(200).size(), c.got);
    EXPECT_TRUE(results().at_end());
  }
}

TEST_F(NfsProgram, WritesSayWhatTheFileWasBefore) {
  FileHandle file = make_file("f");
  for (uint64_t before : {0u, 3u}) {
    auto args = [&](Encoder& to) {
      to.put_opaque(file.bytes());
      to.put_u64(before);
      to.put_u32(3);
      to.put_u32(static_cast<uint32_t>(nfs3::Stable::kUnstable));
      to.put_string("abc");
    };
    ASSERT_EQ(status(nfs3::kWrite, args), Status::kOk);
    ASSERT_TRUE(results().get_bool());
    EXPECT_EQ(results().get_u64(), before);
    get_time(results());
    get_time(results());
    EXPECT_EQ(nfs3::get_optional_attributes(results())->size, before + 3);
    EXPECT_EQ(results().get_u32(), 3u);
    EXPECT_EQ(results().get_u32(), 0u);
    EXPECT_EQ(results().get_u64(), tree_.instance());
    EXPECT_TRUE(results().at_end());
  }
  auto mismatch = [&](Encoder& to) {
    to.put_opaque(file.bytes());
    to.put_u64(0);
    to.put_u32(4);
    to.put_u32(0);
    to.put_string("abc");
  };
  EXPECT_EQ(status(nfs3::kWrite, mismatch), Status::kInval);
}

TEST_F(NfsProgram, SizesOutsideTheLimitsAreErrors) {
  FileHandle file = make_file("f");
  auto write_at = [&](uint64_t offset) {
    return status(nfs3::kWrite, [&](Encoder& to) {
      to.put_opaque(file.bytes());
      to.put_u64(offset);
      to.put_u32(1);
      to.put_u32(0);
      to.put_string("x");
    });
  };
  EXPECT_EQ(write_at(UINT64_MAX), Status::kFBig);
  EXPECT_EQ(write_at(tree_.limits().largest_file), Status::kFBig);
  EXPECT_EQ(write_at(tree_.limits().largest_file - 1), Status::kOk);
}

TEST_F(NfsProgram, CreateModes) {
  EXPECT_EQ(create("f", nfs3::CreateMode::kUnchecked), Status::kOk);
  EXPECT_EQ(create("f", nfs3::CreateMode::kUnchecked), Status::kOk);
  EXPECT_EQ(create("f", nfs3::CreateMode::kGuarded), Status::kExist);
  EXPECT_EQ(create("f", nfs3::CreateMode::kExclusive, 1), Status::kExist);
  EXPECT_EQ(create("e", nfs3::CreateMode::kExclusive, 1), Status::kOk);
  EXPECT_EQ(create("e", nfs3::CreateMode::kExclusive, 1), Status::kOk);
  EXPECT_EQ(create("e", nfs3::CreateMode::kExclusive, 2), Status::kExist);
  EXPECT_EQ(create("a/b", nfs3::CreateMode::kGuarded), Status::kAcces);
  EXPECT_EQ(create(std::string_view("a\0b", 3), nfs3::CreateMode::kGuarded), Status::kAcces);
  EXPECT_EQ(create(std::string(300, 'n'), nfs3::CreateMode::kGuarded), Status::kNameTooLong);
  Node* folder = nullptr;
  ASSERT_EQ(tree_.make(tree_.root(), "d", FileType::kDirectory, {}, "", folder), Status::kOk);
  EXPECT_EQ(create("d", nfs3::CreateMode::kUnchecked), Status::kExist);
}

TEST_F(NfsProgram, GuardedSetattr) {
  FileHandle file = make_file("f");
  Node* node = nullptr;
  ASSERT_EQ(tree_.find(file, node), Status::kOk);
  auto set_mode = [&](Time guard) {
    return status(nfs3::kSetattr, [&](Encoder& to) {
      to.put_opaque(file.bytes());
      to.put_bool(true);
      to.put_u32(0600);
      for (int i = 0; i < 5; ++i)
        to.put_u32(0);
      to.put_bool(true);
      to.put_u32(guard.seconds);
      to.put_u32(guard.nanoseconds);
    });
  };
  Time old = node->changed;
  EXPECT_EQ(set_mode(old), Status::kOk);
  EXPECT_EQ(node->mode, 0600u);
  EXPECT_EQ(set_mode(old), Status::kNotSync);
}

TEST_F(NfsProgram, DevicesAreNotMade) {
  for (uint32_t type : {3u, 4u, 6u, 7u, 1u, 2u, 5u, 99u}) {
    auto args = [&](Encoder& to) {
      put_place(to, root_, "dev");
      to.put_u32(type);
      bool device = type == 3 || type == 4;
      if (device || type == 6 || type == 7)
        put_no_attributes(to);
      if (device)
        to.put_u64(0x100000001);
    };
    bool known = type == 3 || type == 4 || type == 6 || type == 7;
    EXPECT_EQ(status(nfs3::kMknod, args), known ? Status::kNotSupp : Status::kBadType) << type;
  }
}

class NfsListing : public NfsProgram {
 protected:
  struct Page {
    std::vector<std::string> names;
    uint64_t last_cookie = 0;
    uint64_t verifier = 0;
    bool eof = false;
    uint64_t bytes = 0;
  };
  std::optional<Page> list(bool plus, uint64_t cookie, uint64_t verifier, uint32_t count,
                           Status expected = Status::kOk) {
    auto args = [&](Encoder& to) {
      to.put_opaque(root_.bytes());
      to.put_u64(cookie);
      to.put_u64(verifier);
      if (plus)
        to.put_u32(count);
      to.put_u32(count);
    };
    Status got = status(plus ? nfs3::kReaddirplus : nfs3::kReaddir, args, 128 << 10);
    EXPECT_EQ(got, expected);
    if (got != Status::kOk)
      return std::nullopt;
    return get_page(plus);
  }
  Page get_page(bool plus) {
    Page page;
    uint64_t all = results().remaining();
    nfs3::get_optional_attributes(results());
    page.verifier = results().get_u64();
    while (results().get_bool()) {
      results().get_u64();
      std::array<char, 256> room;
      page.names.emplace_back(get_text(results(), room));
      page.last_cookie = results().get_u64();
      if (plus) {
        EXPECT_TRUE(nfs3::get_optional_attributes(results()));
        EXPECT_TRUE(nfs3::get_optional_handle(results()));
      }
    }
    page.eof = results().get_bool();
    EXPECT_TRUE(results().at_end());
    page.bytes = all;
    return page;
  }
};

TEST_F(NfsListing, EveryNameOnceAtAnyReplySize) {
  std::multiset<std::string> expected = {".", ".."};
  for (int i = 0; i < 500; ++i) {
    std::string name = "n" + std::to_string(i) + std::string(static_cast<size_t>(i % 90), 'x');
    make_file(name);
    expected.insert(name);
  }
  for (bool plus : {false, true}) {
    for (uint32_t count : {400u, 1000u, 8192u, UINT32_MAX}) {
      std::multiset<std::string> seen;
      Page page;
      for (int pages = 0; !page.eof && pages < 1000; ++pages) {
        auto next = list(plus, page.last_cookie, page.verifier, count);
        ASSERT_TRUE(next);
        page = *next;
        EXPECT_LE(page.bytes, count);
        seen.insert(page.names.begin(), page.names.end());
      }
      EXPECT_EQ(seen, expected) << count;
    }
  }
}

TEST_F(NfsListing, AReplyTooSmallForAnEntryIsAnError) {
  for (bool plus : {false, true}) {
    for (uint32_t count : {0u, 1u, 100u})
      list(plus, 0, 0, count, Status::kTooSmall);
  }
}

TEST_F(NfsListing, CookiesOfOthersAreErrors) {
  Page page = *list(false, 0, 0, 4096);
  EXPECT_EQ(page.names.size(), 2u);
  EXPECT_TRUE(list(false, page.last_cookie, page.verifier, 4096)->names.empty());
  list(false, page.last_cookie, page.verifier + 1, 4096, Status::kBadCookie);
  list(false, page.last_cookie + 1, page.verifier, 4096, Status::kBadCookie);
  list(true, UINT64_MAX, page.verifier, 4096, Status::kBadCookie);
}

TEST_F(NfsListing, GoesOnWhileNamesCome) {
  for (int i = 0; i < 20; ++i)
    make_file("old" + std::to_string(i));
  Page page = *list(false, 0, 0, 400);
  ASSERT_FALSE(page.eof);
  std::multiset<std::string> seen(page.names.begin(), page.names.end());
  for (int i = 0; i < 20; i += 2)
    ASSERT_EQ(tree_.remove(tree_.root(), "old" + std::to_string(i)), Status::kOk);
  make_file("new");
  while (!page.eof) {
    page = *list(false, page.last_cookie, page.verifier, 400);
    seen.insert(page.names.begin(), page.names.end());
  }
  for (int i = 1; i < 20; i += 2)
    EXPECT_EQ(seen.count("old" + std::to_string(i)), 1u) << i;
  EXPECT_EQ(seen.count("new"), 1u);
}

}  // namespace
}  // namespace rrdk::interop
