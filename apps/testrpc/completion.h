// Shell completion for testrpc's command line, generated from its table of options.
#pragma once

#include <string>
#include <string_view>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// Returns a script for the shell "bash" or "zsh". Errors: kInvalidArgument (another shell).
Result<std::string> completion(std::string_view shell);

}  // namespace rrdk::testrpc
