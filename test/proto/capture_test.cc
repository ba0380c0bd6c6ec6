// Golden test: every transport header in the captures of test/data/captures, which Linux's client
// and server sent, decodes to tshark's dissection, and encodes back to the same bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/codec.h"
#include "proto/negotiation.h"

namespace rrdk::proto {
namespace {

using nlohmann::json;
using Bytes = std::vector<std::byte>;

struct Capture {
  const char* name;
  size_t headers;        // a file that lost some must not pass
  uint32_t client_size;  // the client's receive size in the connection request, in bytes
  // "call" or "reply", msg_type, and the lists that it has; with their counts.
  std::map<std::string, int> shapes;
};

// The captures contain the same work: a client that can receive 1024 bytes also sends long calls.
const Capture kCaptures[] = {
    {"siw-nfs3-veth",
     3592,
     4096,
     {{"call 0", 1635},
      {"call 0 reads", 2},
      {"call 0 writes", 4},
      {"call 0 reply", 155},
      {"reply 0", 1637},
      {"reply 0 writes", 4},
      {"reply 1 reply", 155}}},
    {"siw-nfs3-inline1k-veth",
     3592,
     1024,
     {{"call 0", 1632},
      {"call 0 reads", 4},
      {"call 0 writes", 4},
      {"call 0 reply", 155},
      {"call 1 reads", 1},
      {"reply 0", 1637},
      {"reply 0 writes", 4},
      {"reply 1 reply", 155}}},
    {"rxe-nfs3-veth",
     3592,
     4096,
     {{"call 0", 1635},
      {"call 0 reads", 2},
      {"call 0 writes", 4},
      {"call 0 reply", 155},
      {"reply 0", 1637},
      {"reply 0 writes", 4},
      {"reply 1 reply", 155}}},
};

json dissection(const Capture& capture) {
  std::ifstream in(std::string(RRDK_TEST_DATA "/captures/") + capture.name + ".json");
  return json::parse(in, nullptr, false);
}

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(std::byte(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

json segments_json(const ChunkLists& lists, const WriteChunk& chunk) {
  json out = json::array();
  for (const Segment& s : lists.of(chunk))
    out.push_back({s.handle, s.length, s.offset});
  return out;
}

// Our header in the words of the dissection.
json to_json(const Header& header) {
  const ChunkLists& lists = header.lists;
  json reads = json::array();
  for (const ReadChunk& chunk : std::span(lists.reads, lists.num_reads)) {
    for (const Segment& s : lists.of(chunk))
      reads.push_back({chunk.position, s.handle, s.length, s.offset});
  }
  json writes = json::array();
  for (const WriteChunk& chunk : std::span(lists.writes, lists.num_writes))
    writes.push_back(segments_json(lists, chunk));
  return {{"xid", header.xid},
          {"version", header.version},
          {"flow_control", header.credits},
          {"msg_type", static_cast<uint32_t>(header.type)},
          {"reads", reads},
          {"writes", writes},
          {"reply", lists.has_reply ? segments_json(lists, lists.reply) : json()}};
}

std::string shape(const json& entry) {
  std::string out =
      entry["role"].get<std::string>() + " " + std::to_string(entry["msg_type"].get<int>());
  for (const char* list : {"reads", "writes", "reply"})
    out += entry[list].empty() ? "" : std::string(" ") + list;
  return out;
}

class CaptureTest : public testing::TestWithParam<Capture> {
 protected:
  void SetUp() override {
    dissection_ = dissection(GetParam());
    ASSERT_TRUE(dissection_.is_object()) << GetParam().name;
  }
  json dissection_;
};

// Shows: V1-HDR-07, V1-HDR-08, V1-HDR-09, V1-HDR-10, V1-HDR-11, V1-HDR-12, V1-HDR-13, V1-HDR-22,
// V1-CHUNK-06, V1-RL-02, V1-LONG-02, V1-WL-19, EXP-03, EXP-28, SEC-14
TEST_P(CaptureTest, HeadersDecodeToTheirDissectionAndEncodeToTheirBytes) {
  std::map<std::string, int> shapes;
  for (const json& entry : dissection_["headers"]) {
    SCOPED_TRACE(entry.dump());
    Bytes bytes = from_hex(entry["bytes"]);
    Bytes message = bytes;
    message.resize(entry["length"]);
    auto role = entry["role"] == "call" ? Direction::kCall : Direction::kReply;
    Header header;
    Decoded decoded = decode(message, role, Limits{}, header);
    ASSERT_EQ(decoded.verdict, Verdict::kOk) << to_string(decoded.verdict);
    EXPECT_EQ(decoded.header_length, bytes.size());
    json expected = entry;
    for (const char* extra : {"frame", "role", "length", "bytes"})
      expected.erase(extra);
    EXPECT_EQ(to_json(header), expected);

    Bytes encoded(encoded_length(header));
    EXPECT_EQ(encode(header, encoded), bytes.size());
    EXPECT_EQ(encoded, bytes);
    ASSERT_FALSE(HasFailure());
    ++shapes[shape(entry)];
  }
  EXPECT_EQ(dissection_["headers"].size(), GetParam().headers);
  EXPECT_EQ(shapes, GetParam().shapes);
}

// Shows: PD-01, PD-04, PD-05, PD-07, PD-15, PD-21, PD-37, PD-38
TEST_P(CaptureTest, PrivateDataOfClientAndServerIsFound) {
  const json& exchange = dissection_["private_data"];
  ASSERT_EQ(exchange.size(), 2u);
  PrivateData client = decode_private_data(from_hex(exchange[0]["octets"]));
  EXPECT_TRUE(client.remote_invalidation);
  EXPECT_EQ(client.send_size, GetParam().client_size);
  EXPECT_EQ(client.receive_size, GetParam().client_size);
  PrivateData server = decode_private_data(from_hex(exchange[1]["octets"]));
  EXPECT_FALSE(server.remote_invalidation);
  EXPECT_EQ(server.send_size, 4096u);
  EXPECT_EQ(server.receive_size, 4096u);
}

// Shows: PD-02, PD-03, PD-06, PD-40
TEST_P(CaptureTest, PrivateDataEncodesToTheOctetsOfLinux) {
  for (const json& entry : dissection_["private_data"]) {
    Bytes octets = from_hex(entry["octets"]);
    auto encoded = encode(decode_private_data(octets));
    EXPECT_NE(std::search(octets.begin(), octets.end(), encoded.begin(), encoded.end()),
              octets.end());
  }
}

INSTANTIATE_TEST_SUITE_P(Linux, CaptureTest, testing::ValuesIn(kCaptures), [](const auto& param) {
  std::string name = param.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace rrdk::proto
