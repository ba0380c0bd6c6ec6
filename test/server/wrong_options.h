// Options that are refused: the error names the option, and no client or server is made.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "rrdk/error.h"
#include "rrdk/runtime.h"

namespace rrdk::loopback {

template <typename Options>
struct Wrong {
  const char* named;
  std::function<void(Options&)> set;
};

template <typename Options>
const std::vector<Wrong<Options>> kOfBoth = {
    {"credits", [](auto& o) { o.credits = 0; }},
    {"credits", [](auto& o) { o.credits = 4097; }},
    {"inline_size", [](auto& o) { o.inline_size = 0; }},
    {"inline_size", [](auto& o) { o.inline_size = 1000; }},
    {"inline_size", [](auto& o) { o.inline_size = 262144 + 1024; }},
    {"max_receive_size", [](auto& o) { o.version2.max_receive_size = 5000; }},
    {"max_receive_size", [](auto& o) { o.version2.max_receive_size = 2048; }},
    {"max_receive_size", [](auto& o) { o.version2.max_receive_size = 262144 + 1024; }},
    {"max_call", [](auto& o) { o.max_call = 1023; }},
    {"max_reply", [](auto& o) { o.max_reply = 0; }},
    {"max_call is 1073741825", [](auto& o) { o.max_call = (1u << 30) + 1; }},
    {"1024 to 1073741824", [](auto& o) { o.max_reply = UINT64_MAX; }},
    {"backward_credits", [](auto& o) { o.backward_credits = 4097; }},
};

template <typename Made, typename Options>
void expect_refused(Runtime& runtime, const std::vector<Wrong<Options>>& cases) {
  for (const Wrong<Options>& wrong : cases) {
    Options options;
    wrong.set(options);
    auto made = Made::create(runtime, options);
    ASSERT_FALSE(made) << wrong.named;
    EXPECT_EQ(made.error().code, Errc::kInvalidArgument) << wrong.named;
    EXPECT_NE(made.error().message.find(wrong.named), std::string::npos) << made.error().message;
  }
}

}  // namespace rrdk::loopback
