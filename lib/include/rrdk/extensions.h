/**
 * Extensions of RPC-over-RDMA version 2, which an upper layer adds without changing the transport:
 * messages of its own types, and transport properties. Both are put into a registry by
 * Extensions::create(), before anything connects.
 *
 *   bool is_one_word(std::span<const std::byte> info, bool, void*) { return info.size() == 4; }
 *   void on_load(const rrdk::OptionMessage&, rrdk::OptionAnswer& answer, void* context) {
 *     answer.set(101, static_cast<Site*>(context)->load());        // 4 bytes
 *   }
 *   void on_error(const rrdk::OptionError& error, void*) { ++errors[error.why]; }
 *   ...
 *   auto extensions = rrdk::must(rrdk::Extensions::create({.features = {{
 *       .name = "load",
 *       .types = {{.type = 100, .payload = rrdk::OptionPayload::kNone, .check = is_one_word,
 *                  .serve = on_load, .on_error = on_error, .context = &site},
 *                 {.type = 101, .payload = rrdk::OptionPayload::kNone, .check = is_one_word,
 *                  .on_error = on_error, .context = &site}}}}}));
 *   auto server = rrdk::must(rrdk::Server::create(
 *       runtime, {.version2 = {.extensions = extensions.get()}}));
 *   ...
 *   rrdk::ClientOptions options{.version = rrdk::RpcRdmaVersion::kTwo,
 *                               .version2 = {.extensions = extensions.get()}};
 *   ...
 *   rrdk::OptionOutcome load =
 *       rrdk::must(rrdk::send_option_and_wait(*connection, {.type = 100, .info = word}));
 *   if (load.support == rrdk::OptionSupport::kUnsupported) use_another_way();
 *
 * Features: messages of types that the base protocol does not define, RDMA2_OPTIONAL (draft-04
 * section 4) and RDMA_OPTIONAL (draft-00 section 3). A client sends one and gets one answer, which
 * is another such message or an error; a server answers by registered functions. The types of a
 * feature are known together or not at all. Both ends need the feature; a peer without it says so,
 * so support is found out by trial (section 4.1). An OptionType has what the document of an
 * extension must define (section 4.3, and draft-00 section 3.2): the XDR of its data is `check`,
 * the payload `payload`, errors `on_error`.
 *
 * Properties: transport properties besides the two that RRDK has (draft-04 section 5.4), which each
 * end announces when it connects.
 *
 * Lifetime: the registry never changes, so nothing is locked later. Any number of Clients and
 * Servers share it by pointer (Version2ClientOptions::extensions,
 * Version2ServerOptions::extensions); it must outlive them and the Clients' connections, and each
 * `context` must outlive it.
 *
 * Threads: functions given here run on the connection's poll core, during a pass (`check` also
 * where send_option() and create() are called), on several threads at once. They have the limits of
 * callbacks (rrdk/client.h): they must not throw, block or poll, and may destroy only Calls.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rrdk/call_status.h"
#include "rrdk/error.h"

namespace rrdk {

/**
 * The maximum bytes of a message's data (rdma_optinfo). Longer data is neither sent nor accepted.
 */
constexpr size_t kMostOptionInfo = 1024;
/** The maximum bytes of the RPC message after it; the whole must also fit the peer's Receives. */
constexpr size_t kMostOptionPayload = 2048;
/**
 * The maximum bytes of one property's value, and the maximum number of properties in a registry.
 */
constexpr size_t kMostPropertyValue = 64;
constexpr size_t kMostProperties = 8;

/** Whether an RPC message follows (draft-04 section 6.2.1): it must, or must not. */
enum class OptionPayload : uint8_t {
  kUnstated,  ///< refused by Extensions::create()
  kNone,
  kMessage,  ///< in the direction of the message, and with its XID
};

/** The sender of a message. */
struct ExtensionPeer {
  uint64_t connection;  ///< ServerConnection::id(); at a client ConnectionInfo::id
  const char* address;  ///< of the other end, as in the log. Valid during the call
};

/**
 * A message that was received and checked. Its bytes are valid, and do not change, during the call.
 */
struct OptionMessage {
  uint32_t type;
  std::span<const std::byte> info;     ///< without XDR's length and pad
  std::span<const std::byte> payload;  ///< the RPC message, beginning with its XID; empty if absent
  ExtensionPeer from;
};

/** A server's answer. Everything is copied. */
class OptionAnswer {
 public:
  /**
   * Sets the answer: a type of the same feature, its data, and its RPC message if the type has one,
   * whose first word, the XID, is filled in. A later call replaces it. Returns false, and keeps
   * what was set before, if this cannot be sent because of its type or length, or because the
   * type's check() refuses it.
   */
  virtual bool set(uint32_t type, std::span<const std::byte> info,
                   std::span<const std::byte> payload = {}) = 0;

 protected:
  ~OptionAnswer() = default;
};

/** An error concerning a message of a type, at either end. */
struct OptionError {
  enum class Why : uint8_t {
    // At a client, about a message that it sent.
    kUnsupported,  ///< the peer does not know the type, or not this version 2
    kRefused,      ///< another error: `code` is rdma_err
    kBadAnswer,    ///< the answer is not of a type of the feature, or is faulty
    // About a message that was received, and refused or ignored.
    kMalformed,    ///< check() refuses its data, or its type does not have such a payload
    kTooLong,      ///< more than kMostOptionInfo or kMostOptionPayload
    kDirection,    ///< a request at a client, or of a type that is only an answer
    kUnsolicited,  ///< an answer without a request
    kNoAnswer,     ///< serve() set no answer; the peer got SYSTEM
  };
  Why why;
  uint32_t type;
  uint32_t code;  ///< rdma_err, with kRefused and kUnsupported; see TransportError in rrdk/call.h
  ExtensionPeer from;
};

/** One rdma_opttype. */
struct OptionType {
  uint32_t type = 0;
  OptionPayload payload = OptionPayload::kUnstated;
  /**
   * Returns true if the bytes are data of this type, in a request or in an answer. Called for
   * everything that is sent, before it is (first on the thread that calls send_option(), then on
   * the poll core), and for everything that is received, which may be anything. It must only read,
   * and must not call this library.
   */
  bool (*check)(std::span<const std::byte> info, bool is_answer, void* context) = nullptr;
  /**
   * Sets a server's answer to a request of this type before it returns; otherwise the peer is
   * answered SYSTEM. If null, this type is only an answer, and a request of this type is answered
   * BAD_XDR. Clients do not use it; a server needs one in each feature.
   */
  void (*serve)(const OptionMessage& request, OptionAnswer& answer, void* context) = nullptr;
  /** Receives errors of this type. A hostile peer can cause any number, so do not log each. */
  void (*on_error)(const OptionError& error, void* context) = nullptr;
  void* context = nullptr;
};

/** Types that are known together (draft-04 section 4.3). */
struct Feature {
  std::string name = {};  ///< for messages to people
  std::vector<OptionType> types = {};
};

/** A property's value, as the peer announced it. */
struct PropertyValue {
  uint32_t id;
  std::span<const std::byte> value;  ///< empty: the default. Valid during the call
  bool updated;                      ///< true if it changes an earlier value (RDMA2_UPDPROP)
  ExtensionPeer from;
};

/** A transport property of draft-04. */
struct TransportProperty {
  enum class Kind : uint8_t {
    kUnstated,      ///< refused by Extensions::create()
    kStandard,      ///< defined by a document: neither 1 nor 2, nor in the experimental range
    kExperimental,  ///< from 0xFFFFFF00 on (section 5.4.2); its value is opaque
  };
  std::string name = {};  ///< for messages to people
  uint32_t id = 0;
  Kind kind = Kind::kUnstated;
  /**
   * The value that this end announces on each connection, in CONNPROP, and does not change: at most
   * kMostPropertyValue bytes, empty for the default. With `says` false nothing is announced.
   */
  std::vector<std::byte> value = {};
  bool says = true;
  /**
   * For a standard property: returns true if the bytes, which are never empty, are a value. A
   * message with an invalid value is refused as a whole (BAD_XDR). It must only read. Null for
   * other properties.
   */
  bool (*check)(std::span<const std::byte> value, void* context) = nullptr;
  /**
   * Receives the peer's value when the peer announces it, and whenever it changes. Until then, and
   * for peers that announce nothing, the property's default applies. Values longer than
   * kMostPropertyValue are ignored, and so are changes of a property that must not change (section
   * 5.3.1). May be null.
   */
  void (*on_value)(const PropertyValue& value, void* context) = nullptr;
  void* context = nullptr;
};

/** The input of Extensions::create(). */
struct ExtensionList {
  std::vector<Feature> features = {};
  std::vector<TransportProperty> properties = {};
};

/** A registry. Immutable; any thread. */
class Extensions {
 public:
  /**
   * Errors: kInvalidArgument, with nothing registered, if
   *   - a feature has no types, or a type or property occurs twice;
   *   - a type lacks `payload`, `check` or `on_error`;
   *   - a property lacks `kind`;
   *   - a standard property is in the experimental range, is one that RRDK has, lacks `check`, or
   *     announces a value that its `check` refuses;
   *   - an experimental property is outside that range, or has `check`;
   *   - there are more properties or longer values than the bounds above.
   */
  [[nodiscard]] static Result<std::unique_ptr<const Extensions>> create(ExtensionList list);

  /** Null if no feature has the type. */
  const OptionType* find(uint32_t type) const noexcept;
  /** Returns true if both types are known, and belong to one feature. */
  bool together(uint32_t one, uint32_t other) const noexcept;
  /** The name of a feature whose types have no `serve`; empty if there is no such feature. */
  const std::string& unserved() const noexcept { return unserved_; }
  /** In the order of registration. */
  std::span<const TransportProperty> properties() const noexcept { return properties_; }

 private:
  struct Entry {
    OptionType type;
    uint32_t feature;
  };
  Extensions(std::vector<Entry> types, std::string unserved,
             std::vector<TransportProperty> properties);
  const Entry* entry(uint32_t type) const noexcept;

  std::vector<Entry> types_;  // by number
  std::string unserved_;
  std::vector<TransportProperty> properties_;
};

/** A message for send_option(). Copied. */
struct OptionRequest {
  uint32_t type = 0;
  std::span<const std::byte> info = {};
  /**
   * An RPC call message of whole words, with XID and type at least; the XID, its first word, is
   * filled in.
   */
  std::span<const std::byte> payload = {};
  uint32_t timeout_ms = 0;  ///< 0: ClientOptions::call_timeout_ms
};

/** What is known about the peer's support when a message has ended. */
enum class OptionSupport : uint8_t {
  kUnknown,  ///< no answer came
  /**
   * There was an answer, or an error about this message. In draft-00 only an answer is proof: a
   * server of draft-04 ends these messages with kChunkError, and so does one that refuses them.
   */
  kSupported,
  kUnsupported,  ///< INVAL_OPTION, INVAL_PROC, the other draft, or no version 2 at all
};

/** How a message ended. */
struct OptionOutcome {
  /**
   * kOk: there is an answer. kRemoteError, kChunkError: an error, see error_code. kMalformedReply:
   * the answer was faulty. kVersionError: the connection uses version 1, or the other draft.
   * kTooLarge: it does not fit the peer's Receives or, with kAuto until a first reply has settled
   * the version, 1024 bytes. Otherwise as for a call.
   */
  CallStatus status = CallStatus::kConnectionLost;
  OptionSupport support = OptionSupport::kUnknown;
  uint32_t error_code = 0;  ///< rdma_err, with kRemoteError and kChunkError
  uint32_t type = 0;        ///< of the answer, like what follows
  std::vector<std::byte> info = {};
  std::vector<std::byte> payload = {};  ///< the RPC reply message, beginning with its XID
};

class ClientConnection;

/**
 * Called when a message has ended, on the connection's poll core, during a pass, like a call's
 * callback.
 */
using OptionDone = void (*)(OptionOutcome&& outcome, void* argument);
/**
 * Sends a message of a type of Version2ClientOptions::extensions. `done` may be null; it is called
 * once, when the answer or error has come or can no longer come. The message takes a credit as a
 * call does, and waits for one; it is never sent again, and ends at once with kConnectionLost while
 * there is no connection. Any thread. Does not wait, but allocates: it is not for the data path.
 *
 * Errors: kInvalidArgument, with nothing sent and no call of `done` (the type is not in
 * `extensions`, or the request does not match its type).
 *
 *   rrdk::send_option(*connection, {.type = 100, .info = bytes}, on_done, site);
 */
[[nodiscard]] Result<void> send_option(ClientConnection& connection, const OptionRequest& request,
                                       OptionDone done, void* argument);
/**
 * As send_option(), and waits for the end; on an embedded runtime it polls the core meanwhile. In a
 * callback or handler on a poll core it would wait for itself: kInvalidArgument.
 */
[[nodiscard]] Result<OptionOutcome> send_option_and_wait(ClientConnection& connection,
                                                         const OptionRequest& request);

}  // namespace rrdk
