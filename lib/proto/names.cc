#include "proto/header.h"

namespace rrdk::proto {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kTooShort:
      return "too short";
    case Verdict::kBadVersion:
      return "unknown version";
    case Verdict::kBadProc:
      return "unknown message type";
    case Verdict::kTruncated:
      return "truncated";
    case Verdict::kBadBool:
      return "bad list discriminator";
    case Verdict::kBadPosition:
      return "unaligned Position";
    case Verdict::kPositionZeroInMsg:
      return "Position-Zero chunk beside an inline message";
    case Verdict::kNoMessage:
      return "no message";
    case Verdict::kOverlap:
      return "overlapping Read chunks";
    case Verdict::kBeyondStream:
      return "Position beyond the message";
    case Verdict::kBadDirection:
      return "bad direction";
    case Verdict::kTooManyReadChunks:
      return "too many Read chunks";
    case Verdict::kTooManyWriteChunks:
      return "too many Write chunks";
    case Verdict::kTooManySegments:
      return "too many segments";
    case Verdict::kTooManyBytes:
      return "too many bytes";
  }
  return "unknown verdict";
}

}  // namespace rrdk::proto
