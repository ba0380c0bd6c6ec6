// A caller that speaks RPCSEC_GSS (RFC 2203) word by word, so that a test can break any part: with
// the real GSS-API, and a RawClient beneath.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gss/kerberos.h"
#include "gss/wire.h"
#include "rrdk/rpc.h"
#include "test/server/loopback.h"
#include "test/server/raw_client.h"

namespace rrdk::gss {

using loopback::Received;
using loopback::Words;
using loopback::operator+;

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(const Words& words) {
  Bytes bytes(4 * words.size());
  for (size_t i = 0; i != words.size(); ++i)
    xdr::store_u32(&bytes[4 * i], words[i]);
  return bytes;
}

// opaque<>: count, bytes, pad.
inline Words opaque(std::span<const std::byte> from) {
  Bytes padded(from.begin(), from.end());
  padded.resize(from.size() + xdr_pad(from.size()));
  Words words = {static_cast<uint32_t>(from.size())};
  for (size_t at = 0; at != padded.size(); at += 4)
    words.push_back(xdr::load_u32(&padded[at]));
  return words;
}

// Takes what a peer sent apart.
class Reader {
 public:
  explicit Reader(const Words& words, size_t at = 0) : words_(words), at_(at) {}
  uint32_t word() { return at_ < words_.size() ? words_[at_++] : 0xdeadbeef; }
  Bytes opaque() {
    const uint32_t length = word();
    Bytes bytes;
    for (uint32_t got = 0; got < length && at_ < words_.size(); got += 4) {
      std::byte four[4];
      xdr::store_u32(four, words_[at_++]);
      bytes.insert(bytes.end(), four, four + 4);
    }
    EXPECT_GE(bytes.size(), length) << "an opaque ends too early";
    bytes.resize(length);
    return bytes;
  }
  Words rest() {
    return {words_.begin() + static_cast<ptrdiff_t>(std::min(at_, words_.size())), words_.end()};
  }

 private:
  const Words& words_;
  size_t at_;
};

// What a test changes in a call that is right otherwise.
struct Change {
  uint32_t version = 1;
  std::optional<uint32_t> control = {};
  std::optional<uint32_t> protection = {};
  Words behind_credential = {};  // inside its length
  bool wrong_header_checksum = false;
  bool no_verifier = false;
  bool wrong_body_checksum = false;
  bool bare_body = false;                      // as if it were not protected
  std::optional<uint32_t> body_sequence = {};  // the one inside the body
  bool cut_body = false;
};

// A reply, taken apart as far as its results.
struct Answer {
  uint32_t reply_stat = 0;
  uint32_t status = 0;  // accept_stat, or, if denied with AUTH_ERROR, auth_stat
  bool verified = false;
  Words results;

  bool success() const { return reply_stat == 0 && status == 0; }
  bool denied(AuthStat why) const {
    return reply_stat == 1 && status == static_cast<uint32_t>(why);
  }
  bool refused(AcceptStat why) const {
    return reply_stat == 0 && verified && status == static_cast<uint32_t>(why);
  }
};

// One context, from the caller's side.
class GssCaller {
 public:
  explicit GssCaller(const std::string& target = "nfs@localhost", const std::string& user = {})
      : identity_(Identity::initiator(user).value()), target_(target) {}

  // The first token.
  Bytes begin() {
    Token token;
    last_ = context.initiate(*identity_, target_, {}, token);
    EXPECT_TRUE(last_.goes_on()) << last_.error;
    return {token.bytes().begin(), token.bytes().end()};
  }
  // With the answer to it.
  bool complete(std::span<const std::byte> answer) {
    Token none;
    last_ = context.initiate(*identity_, target_, answer, none);
    return last_.complete();
  }

  // From the reply to the first token, behind its XID.
  void take_context(Reader& in) {
    for (const uint32_t word : {1u, 0u, 6u})  // REPLY, MSG_ACCEPTED, RPCSEC_GSS
      ASSERT_EQ(in.word(), word);
    const Bytes checksum = in.opaque();
    ASSERT_EQ(in.word(), 0u) << "SUCCESS";
    handle = in.opaque();
    ASSERT_EQ(in.word(), uint32_t{GSS_S_COMPLETE});
    in.word();
    window = in.word();
    ASSERT_TRUE(complete(in.opaque()));
    EXPECT_TRUE(in.rest().empty());
    EXPECT_TRUE(context.verify(bytes_of({window}), checksum));
  }

  Words credential(uint32_t used_sequence, Protection protection, const Change& change = {}) const {
    const Words body = Words{change.version, change.control.value_or(0), used_sequence,
                             change.protection.value_or(static_cast<uint32_t>(protection))} +
                       opaque(handle) + change.behind_credential;
    return Words{6, static_cast<uint32_t>(4 * body.size())} + body;
  }

  // The RPC message of a call.
  Words message(uint32_t xid, uint32_t procedure, const Words& arguments, Protection protection,
                const Change& change = {}) {
    const uint32_t used = sequence;
    Words header =
        Words{xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, procedure} +
        credential(used, protection, change);
    Words verifier = {0, 0};
    if (!change.no_verifier) {
      Bytes sum = sign(bytes_of(header));
      if (change.wrong_header_checksum)
        sum.back() ^= std::byte{1};
      verifier = Words{6} + opaque(sum);
    }
    return header + verifier +
           body(change.body_sequence.value_or(used), arguments, protection, change);
  }

  Bytes sign(const Bytes& message) {
    Token sum;
    EXPECT_TRUE(context.sign(message, sum));
    return {sum.bytes().begin(), sum.bytes().end()};
  }

  // Results as they come protected; nothing if their protection is wrong.
  std::optional<Words> open(const Words& results, Protection protection, uint32_t used) {
    if (protection == Protection::kNone)
      return results;
    Reader in(results);
    Bytes clear = in.opaque();
    if (protection == Protection::kPrivacy) {
      Token open;
      if (!context.unwrap(clear, open))
        return std::nullopt;
      clear.assign(open.bytes().begin(), open.bytes().end());
    } else if (!context.verify(clear, in.opaque())) {
      return std::nullopt;
    }
    Words words;
    for (size_t at = 0; at < clear.size(); at += 4)
      words.push_back(xdr::load_u32(&clear[at]));
    if (words.empty() || words[0] != used || !in.rest().empty())
      return std::nullopt;
    words.erase(words.begin());
    return words;
  }

  Context context;
  Bytes handle;
  uint32_t sequence = 1;
  uint32_t window = 0;

 private:
  Words body(uint32_t used, const Words& arguments, Protection protection, const Change& change) {
    if (protection == Protection::kNone || change.bare_body)
      return arguments;
    const Bytes clear = bytes_of(Words{used} + arguments);
    Words made;
    if (protection == Protection::kPrivacy) {
      Token sealed;
      EXPECT_TRUE(context.wrap(clear, sealed));
      Bytes bytes(sealed.bytes().begin(), sealed.bytes().end());
      if (change.wrong_body_checksum)
        bytes.back() ^= std::byte{1};
      made = opaque(bytes);
    } else {
      Bytes sum = sign(clear);
      if (change.wrong_body_checksum)
        sum.back() ^= std::byte{1};
      made = opaque(clear) + opaque(sum);
    }
    if (change.cut_body)
      made.pop_back();
    return made;
  }

  std::shared_ptr<const Identity> identity_;
  std::string target_;
  Step last_;
};

}  // namespace rrdk::gss
