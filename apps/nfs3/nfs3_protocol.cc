#include "nfs3_protocol.h"

namespace rrdk::nfs3 {

const char* to_string(Status status) noexcept {
  switch (status) {
    case Status::kOk:
      return "NFS3_OK";
    case Status::kPerm:
      return "NFS3ERR_PERM";
    case Status::kNoEnt:
      return "NFS3ERR_NOENT";
    case Status::kIo:
      return "NFS3ERR_IO";
    case Status::kNxIo:
      return "NFS3ERR_NXIO";
    case Status::kAcces:
      return "NFS3ERR_ACCES";
    case Status::kExist:
      return "NFS3ERR_EXIST";
    case Status::kXDev:
      return "NFS3ERR_XDEV";
    case Status::kNoDev:
      return "NFS3ERR_NODEV";
    case Status::kNotDir:
      return "NFS3ERR_NOTDIR";
    case Status::kIsDir:
      return "NFS3ERR_ISDIR";
    case Status::kInval:
      return "NFS3ERR_INVAL";
    case Status::kFBig:
      return "NFS3ERR_FBIG";
    case Status::kNoSpc:
      return "NFS3ERR_NOSPC";
    case Status::kRoFs:
      return "NFS3ERR_ROFS";
    case Status::kMLink:
      return "NFS3ERR_MLINK";
    case Status::kNameTooLong:
      return "NFS3ERR_NAMETOOLONG";
    case Status::kNotEmpty:
      return "NFS3ERR_NOTEMPTY";
    case Status::kDQuot:
      return "NFS3ERR_DQUOT";
    case Status::kStale:
      return "NFS3ERR_STALE";
    case Status::kRemote:
      return "NFS3ERR_REMOTE";
    case Status::kBadHandle:
      return "NFS3ERR_BADHANDLE";
    case Status::kNotSync:
      return "NFS3ERR_NOT_SYNC";
    case Status::kBadCookie:
      return "NFS3ERR_BAD_COOKIE";
    case Status::kNotSupp:
      return "NFS3ERR_NOTSUPP";
    case Status::kTooSmall:
      return "NFS3ERR_TOOSMALL";
    case Status::kServerFault:
      return "NFS3ERR_SERVERFAULT";
    case Status::kBadType:
      return "NFS3ERR_BADTYPE";
    case Status::kJukebox:
      return "NFS3ERR_JUKEBOX";
  }
  return "an unknown NFS status";
}

}  // namespace rrdk::nfs3
