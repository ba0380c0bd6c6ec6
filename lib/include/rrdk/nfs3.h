/**
 * NFS version 3 and its MOUNT protocol: their upper-layer bindings and numbers, for clients of any
 * NFSv3 server, and for servers. RFC 8267 section 2 says which items of NFS RDMA may move, RFC 1813
 * section 3.3 and appendix I define the results.
 *
 *   call.begin(rrdk::nfs3::kBinding, rrdk::nfs3::kRead);
 *
 *   for (rrdk::Procedure& procedure : table)                      // handlers by number
 *     procedure.idempotent = rrdk::nfs3::is_idempotent(procedure.number);
 *   rrdk::must(server->add_service({.binding = &rrdk::nfs3::kBinding, .procedures = table}));
 *
 * Everything is constant. Sizes are bytes of XDR. The caller must add the variable parts of a reply
 * (Call::expect_reply()): entries of READDIR and READDIRPLUS, and data for which no memory was
 * offered.
 */
#pragma once

#include <cstdint>

#include "rrdk/binding.h"

/** RFC 1813. */
namespace rrdk::nfs3 {

/** The program. */
constexpr uint32_t kProgram = 100003;
constexpr uint32_t kVersion = 3;

/** Section 3.3. */
enum ProcedureNumber : uint32_t {
  kNull = 0,
  kGetattr = 1,
  kSetattr = 2,
  kLookup = 3,
  kAccess = 4,
  kReadlink = 5,
  kRead = 6,
  kWrite = 7,
  kCreate = 8,
  kMkdir = 9,
  kSymlink = 10,
  kMknod = 11,
  kRemove = 12,
  kRmdir = 13,
  kRename = 14,
  kLink = 15,
  kReaddir = 16,
  kReaddirplus = 17,
  kFsstat = 18,
  kFsinfo = 19,
  kPathconf = 20,
  kCommit = 21,
};

/**
 * Returns false if running the procedure twice differs from running it once, so that a server needs
 * it in its duplicate request cache (Procedure::idempotent). SETATTR is such a procedure, since its
 * guard is the time of the last change.
 */
constexpr bool is_idempotent(uint32_t procedure) noexcept {
  switch (procedure) {
    case kSetattr:
    case kCreate:
    case kMkdir:
    case kSymlink:
    case kMknod:
    case kRemove:
    case kRmdir:
    case kRename:
    case kLink:
      return false;
    default:
      return true;
  }
}

/** Sizes of RFC 1813's types in a reply (sections 2.5 and 2.6). */
namespace size {
/** A file handle counts with its longest form, 64 bytes. */
constexpr uint32_t kWord = 4;
constexpr uint32_t kHyper = 8;
constexpr uint32_t kStatus = kWord;
constexpr uint32_t kHandle = kWord + 64;
constexpr uint32_t kFattr = 5 * kWord + 8 * kHyper;
constexpr uint32_t kPostOpAttr = kWord + kFattr;
constexpr uint32_t kPostOpHandle = kWord + kHandle;
constexpr uint32_t kWccData = kWord + 3 * kHyper + kPostOpAttr;
constexpr uint32_t kVerifier = 8;
constexpr uint32_t kNewObject = kStatus + kPostOpHandle + kPostOpAttr + kWccData;
// Status, attributes, verifier, end of the list and eof; the entries vary.
constexpr uint32_t kDirectory = kStatus + kPostOpAttr + kVerifier + 2 * kWord;
}  // namespace size

/** In the order of their numbers. */
inline constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kNull, .name = "NULL"},
    {.procedure = kGetattr, .name = "GETATTR", .fixed_results = size::kStatus + size::kFattr},
    {.procedure = kSetattr, .name = "SETATTR", .fixed_results = size::kStatus + size::kWccData},
    {.procedure = kLookup,
     .name = "LOOKUP",
     .fixed_results = size::kStatus + size::kHandle + 2 * size::kPostOpAttr},
    {.procedure = kAccess,
     .name = "ACCESS",
     .fixed_results = size::kStatus + size::kPostOpAttr + size::kWord},
    {.procedure = kReadlink,  // the path
     .name = "READLINK",
     .eligible_results = 1,
     .fixed_results = size::kStatus + size::kPostOpAttr + size::kWord},
    {.procedure = kRead,  // the data; count, eof and its length word stay
     .name = "READ",
     .eligible_results = 1,
     .fixed_results = size::kStatus + size::kPostOpAttr + 3 * size::kWord},
    {.procedure = kWrite,  // the data
     .name = "WRITE",
     .eligible_args = 1,
     .fixed_results = size::kStatus + size::kWccData + 2 * size::kWord + size::kVerifier},
    {.procedure = kCreate, .name = "CREATE", .fixed_results = size::kNewObject},
    {.procedure = kMkdir, .name = "MKDIR", .fixed_results = size::kNewObject},
    {.procedure = kSymlink,  // the path
     .name = "SYMLINK",
     .eligible_args = 1,
     .fixed_results = size::kNewObject},
    {.procedure = kMknod, .name = "MKNOD", .fixed_results = size::kNewObject},
    {.procedure = kRemove, .name = "REMOVE", .fixed_results = size::kStatus + size::kWccData},
    {.procedure = kRmdir, .name = "RMDIR", .fixed_results = size::kStatus + size::kWccData},
    {.procedure = kRename, .name = "RENAME", .fixed_results = size::kStatus + 2 * size::kWccData},
    {.procedure = kLink,
     .name = "LINK",
     .fixed_results = size::kStatus + size::kPostOpAttr + size::kWccData},
    {.procedure = kReaddir, .name = "READDIR", .fixed_results = size::kDirectory},
    {.procedure = kReaddirplus, .name = "READDIRPLUS", .fixed_results = size::kDirectory},
    {.procedure = kFsstat,
     .name = "FSSTAT",
     .fixed_results = size::kStatus + size::kPostOpAttr + 6 * size::kHyper + size::kWord},
    {.procedure = kFsinfo,
     .name = "FSINFO",
     .fixed_results = size::kStatus + size::kPostOpAttr + 8 * size::kWord + 2 * size::kHyper},
    {.procedure = kPathconf,
     .name = "PATHCONF",
     .fixed_results = size::kStatus + size::kPostOpAttr + 6 * size::kWord},
    {.procedure = kCommit,
     .name = "COMMIT",
     .fixed_results = size::kStatus + size::kWccData + size::kVerifier},
};

/** For calls of clients, and services of servers. */
inline constexpr Binding kBinding = {
    .program = kProgram, .version = kVersion, .name = "nfs3", .procedures = kProcedures};

/** MOUNT version 3 (appendix I): RDMA may move no item. Most servers offer it over TCP. */
namespace mount {

/** The program. */
constexpr uint32_t kProgram = 100005;
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMnt = 1;
constexpr uint32_t kDump = 2;
constexpr uint32_t kUmnt = 3;
constexpr uint32_t kUmntAll = 4;
constexpr uint32_t kExport = 5;

constexpr uint32_t kMaxPath = 1024;  ///< MNTPATHLEN

/** In the order of their numbers. Lists of mounts, exports and flavours are variable parts. */
inline constexpr ProcedureBinding kProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = kMnt,
     .name = "MNT",
     .fixed_results = size::kStatus + size::kHandle + size::kWord},
    {.procedure = kDump, .name = "DUMP", .fixed_results = size::kWord},
    {.procedure = kUmnt, .name = "UMNT"},
    {.procedure = kUmntAll, .name = "UMNTALL"},
    {.procedure = kExport, .name = "EXPORT", .fixed_results = size::kWord},
};

/** For calls of clients, and services of servers. */
inline constexpr Binding kBinding = {
    .program = kProgram, .version = kVersion, .name = "mount3", .procedures = kProcedures};

}  // namespace mount
}  // namespace rrdk::nfs3
