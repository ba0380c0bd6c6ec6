// Sends a text and prints the answer. Usage: echo_client [URI [TEXT]]
#include <cstdio>

#include "example.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"

int main(int argc, char** argv) {
  const char* text = argc > 2 ? argv[2] : "hello";
  rrdk::must(rrdk::ensure_eal());
  auto memory = rrdk::must(rrdk::Memory::create({}));
  auto runtime = rrdk::must(rrdk::Runtime::create(*memory, {}));
  auto client = rrdk::must(rrdk::Client::create(*runtime));
  auto connection = rrdk::must(client->connect(argc > 1 ? argv[1] : kDefaultUri));

  rrdk::Call call(*connection);
  call.begin(kBinding, kEcho).put_string(text);
  call.expect_reply(kMaxText);  // how much the reply may hold beyond the binding's size
  rrdk::CallStatus status = call.submit_and_wait();
  if (status != rrdk::CallStatus::kOk)
    give_up(rrdk::to_string(status));

  char back[kMaxText];
  std::string_view echoed = call.results().get_string(back);
  if (!call.results().at_end())
    give_up("the reply does not decode");
  std::printf("%.*s\n", static_cast<int>(echoed.size()), echoed.data());
  return 0;
}
