// A registry for tests that records the calls of its functions.
#pragma once

#include <map>
#include <vector>

#include "engine_end.h"
#include "rrdk/extensions.h"

namespace rrdk::engine::test {

// 100 is a request and 101 its answer (both are served, so that either may be sent as a request).
// Their data is whole words, and the first word of 100 selects the answer. 110 and 111 are followed
// by a message.
struct TestExtensions {
  using Why = OptionError::Why;
  static constexpr uint32_t kAnswers = 1, kSaysNothing = 2, kSaysNonsense = 3;

  explicit TestExtensions(bool loaded = true, std::vector<TransportProperty> properties = {}) {
    ExtensionList list;
    if (loaded)
      list.features = {{.name = "words", .types = {type(100), type(101), answer_only(102)}},
                       {.name = "messages", .types = {type(110), type(111)}}};
    list.features.push_back({.name = "other", .types = {type(120), type(121)}});
    list.properties = std::move(properties);
    made = Extensions::create(std::move(list)).value();
  }
  OptionType type(uint32_t number) {
    bool has_message = number / 10 == 11;
    return {.type = number,
            .payload = has_message ? OptionPayload::kMessage : OptionPayload::kNone,
            .check = [](std::span<const std::byte> bytes, bool,
                        void*) { return bytes.size() % 4 == 0 && !bytes.empty(); },
            .serve = [](const OptionMessage& request, OptionAnswer& answer,
                        void* self) { static_cast<TestExtensions*>(self)->serve(request, answer); },
            .on_error = [](const OptionError& error,
                           void* self) { ++static_cast<TestExtensions*>(self)->errors[error.why]; },
            .context = this};
  }
  OptionType answer_only(uint32_t number) {
    OptionType made_type = type(number);
    made_type.serve = nullptr;
    return made_type;
  }
  void serve(const OptionMessage& request, OptionAnswer& answer) {
    served.push_back(request.type);
    info.assign(request.info.begin(), request.info.end());
    payload.assign(request.payload.begin(), request.payload.end());
    switch (xdr::load_u32(request.info.data())) {
      case kSaysNothing:
        return;
      case kSaysNonsense:
        EXPECT_FALSE(answer.set(77, request.info));
        EXPECT_FALSE(
            answer.set(request.type == 120 ? 100 : 120, request.info));  // of another feature
        EXPECT_FALSE(answer.set(request.type, Bytes(3)));                // which check() refuses
        EXPECT_FALSE(answer.set(request.type, Bytes(1028)));             // too long for any type
        // Neither a message nor a call.
        EXPECT_FALSE(answer.set(request.type, request.info, Bytes(8)));
        return;
      default: {
        Bytes message = payload;
        if (!message.empty())
          xdr::store_u32(&message[4], 1);
        EXPECT_TRUE(answer.set(request.type | 1, request.info, message));
      }
    }
  }

  std::unique_ptr<const Extensions> made;
  std::vector<uint32_t> served;
  Bytes info, payload;
  std::map<Why, uint32_t> errors;
};

}  // namespace rrdk::engine::test
