/**
 * Extensions of RPC-over-RDMA version 2: what an upper layer adds to the protocol without a change
 * of the transport.
 *
 *   - Features: messages of types that the base protocol does not define, RDMA2_OPTIONAL (draft-04
 *     section 4) and RDMA_OPTIONAL (draft-00 section 3). A client sends one and gets one answer,
 *     another such message or an error; a server answers them by registered functions.
 *   - Transport properties beyond the two that RRDK has (draft-04 section 5.4): what each end says
 *     of itself when it connects, and what it hears.
 *
 * All are registered before anything connects: Extensions::create() checks them and makes a
 * registry that never changes, so that nothing is locked later. Clients and servers, as many as
 * like, share it by pointer (Version2ClientOptions::extensions, Version2ServerOptions::extensions);
 * it outlives them and the Clients' connections. Both ends need the same feature; a peer without it
 * says so, which is how support is found out: by trial (section 4.1).
 *
 * What a document of an extension has to define (section 4.3, and draft-00 section 3.2) is what a
 * type has here: the XDR of its data is `check`, the payload `payload`, errors `on_error`.
 * A feature is known as a whole or not at all: its types are registered together.
 *
 * Functions given here run on the connection's poll core, in a pass of it (`check` also where
 * send_option() and create() are called), and have the limits of callbacks (rrdk/client.h): they do
 * not throw, block or poll, and destroy nothing but Calls. Threads call them at the same time. Each
 * has `context`, which is its registrant's and outlives the registry.
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
 *   auto server = rrdk::must(rrdk::Server::create(runtime, {.version2 = {.extensions =
 * extensions.get()}}));
 *   ...
 *   rrdk::ClientOptions options{.version = rrdk::RpcRdmaVersion::kTwo,
 *                               .version2 = {.extensions = extensions.get()}};
 *   ...
 *   rrdk::OptionOutcome load =
 *       rrdk::must(rrdk::send_option_and_wait(*connection, {.type = 100, .info = word}));
 *   if (load.support == rrdk::OptionSupport::kUnsupported) use_another_way();
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

/** Bytes of a message's data (rdma_optinfo) at most. More is neither sent nor taken. */
constexpr size_t kMostOptionInfo = 1024;
/** Bytes of the RPC message behind it at most; the whole must also fit the peer's Receives. */
constexpr size_t kMostOptionPayload = 2048;
/** Bytes of one property's value, and properties of one registry, at most. */
constexpr size_t kMostPropertyValue = 64;
constexpr size_t kMostProperties = 8;

/** Whether an RPC message follows (draft-04 section 6.2.1): it must, or must not. */
enum class OptionPayload : uint8_t {
  kUnstated,  ///< refused by Extensions::create()
  kNone,
  kMessage,  ///< of the direction of the message, and under its XID
};

/** Where a message is from. */
struct ExtensionPeer {
  uint64_t connection;  ///< ServerConnection::id(); of a client's, ConnectionInfo::id
  const char* address;  ///< of the other end, as the log has it. Valid during the call
};

/** A message that came, checked. Its bytes are valid during the call, and nobody changes them. */
struct OptionMessage {
  uint32_t type;
  std::span<const std::byte> info;     ///< without XDR's length and pad
  std::span<const std::byte> payload;  ///< the RPC message, its XID first; empty: there is none
  ExtensionPeer from;
};

/** What a server answers. Everything is copied. */
class OptionAnswer {
 public:
  /**
   * The answer's type, of the same feature, its data, and its RPC message where the type has one:
   * the first word, the XID, is filled in. A later one replaces it. False: that cannot be sent,
   * for its type, its length or what the type's check() says; what was set before stays.
   */
  virtual bool set(uint32_t type, std::span<const std::byte> info,
                   std::span<const std::byte> payload = {}) = 0;

 protected:
  ~OptionAnswer() = default;
};

/** What went wrong with a message of a type, on whichever side. */
struct OptionError {
  enum class Why : uint8_t {
    // At a client, of a message that it had sent.
    kUnsupported,  ///< the peer knows no such type, or not this version 2
    kRefused,      ///< another error: `code` is rdma_err
    kBadAnswer,    ///< the answer is of a type that is none of the feature's, or faulty
    // Of a message that came, and was refused or ignored.
    kMalformed,    ///< its data is not what check() wants, its payload not what the type has
    kTooLong,      ///< more than kMostOptionInfo or kMostOptionPayload
    kDirection,    ///< a request at a client, or of a type that is only an answer
    kUnsolicited,  ///< an answer to nothing
    kNoAnswer,     ///< serve() has set none, which the peer was told as SYSTEM
  };
  Why why;
  uint32_t type;
  uint32_t code;  ///< rdma_err, of kRefused and kUnsupported; see TransportError in rrdk/call.h
  ExtensionPeer from;
};

/** One rdma_opttype. */
struct OptionType {
  uint32_t type = 0;
  OptionPayload payload = OptionPayload::kUnstated;
  /**
   * Whether the bytes are data of this type, of a request or of an answer: asked of all that is
   * sent, before it is (first on the thread that calls send_option(), then on the poll core), and
   * of all that comes, which may be anything at all. It only looks, and calls nothing of this
   * library.
   */
  bool (*check)(std::span<const std::byte> info, bool is_answer, void* context) = nullptr;
  /**
   * A server's answer to a request of this type, to be set before it returns; without, the peer is
   * answered SYSTEM. Null: this type is only an answer, and a request of it is answered BAD_XDR.
   * Clients have no use for it; a server needs one in each feature.
   */
  void (*serve)(const OptionMessage& request, OptionAnswer& answer, void* context) = nullptr;
  /** Errors of this type. A hostile peer can make as many as it likes: do not log each. */
  void (*on_error)(const OptionError& error, void* context) = nullptr;
  void* context = nullptr;
};

/** Types that are known together (draft-04 section 4.3). */
struct Feature {
  std::string name = {};  ///< for messages to people
  std::vector<OptionType> types = {};
};

/** A property's value, as the peer has told it. */
struct PropertyValue {
  uint32_t id;
  std::span<const std::byte> value;  ///< empty: the default. Valid during the call
  bool updated;                      ///< it was told before, and has changed (RDMA2_UPDPROP)
  ExtensionPeer from;
};

/** A transport property of draft-04. */
struct TransportProperty {
  enum class Kind : uint8_t {
    kUnstated,      ///< refused by Extensions::create()
    kStandard,      ///< of a document: neither 1 nor 2, nor in the range of experiments
    kExperimental,  ///< from 0xFFFFFF00 on (section 5.4.2); its value is opaque
  };
  std::string name = {};  ///< for messages to people
  uint32_t id = 0;
  Kind kind = Kind::kUnstated;
  /**
   * What we say of ourselves on each connection, in CONNPROP, and do not change: at most
   * kMostPropertyValue bytes, none for the default; with `says` false nothing is said.
   */
  std::vector<std::byte> value = {};
  bool says = true;
  /**
   * Of a standard one: whether the bytes, never empty, are a value. A message with one that is none
   * is faulty as a whole, and refused (BAD_XDR). It only looks. Of others null.
   */
  bool (*check)(std::span<const std::byte> value, void* context) = nullptr;
  /**
   * Told of the peer's value when it says it, and whenever it changes. Until then, and for peers
   * that say nothing, the property's default holds. Longer values than kMostPropertyValue are
   * passed over, and changes of what was to stay (section 5.3.1). May be null.
   */
  void (*on_value)(const PropertyValue& value, void* context) = nullptr;
  void* context = nullptr;
};

/** What Extensions::create() makes a registry of. */
struct ExtensionList {
  std::vector<Feature> features = {};
  std::vector<TransportProperty> properties = {};
};

/** A registry. Immutable; any thread. */
class Extensions {
 public:
  /**
   * Errors: kInvalidArgument: a feature without types; a type, or a property, twice; a type without
   * `payload`, `check` or `on_error`; a standard property in the range of experiments, or one that
   * RRDK has; an experimental one outside of that range, or with `check`; a standard one without,
   * or that says a value which its `check` refuses; a property without `kind`; more properties or
   * longer values than the bounds above. Nothing is registered then.
   */
  [[nodiscard]] static Result<std::unique_ptr<const Extensions>> create(ExtensionList list);

  /** Null: no feature has it. */
  const OptionType* find(uint32_t type) const noexcept;
  /** Whether both are known, and of one feature. */
  bool together(uint32_t one, uint32_t other) const noexcept;
  /** The name of a feature whose types have no `serve`; empty: there is none. */
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

/** A message to be sent, by send_option(). Copied. */
struct OptionRequest {
  uint32_t type = 0;
  std::span<const std::byte> info = {};
  /** An RPC call message, XID and type at least, whole words; the XID, its first, is filled in. */
  std::span<const std::byte> payload = {};
  uint32_t timeout_ms = 0;  ///< 0: ClientOptions::call_timeout_ms
};

/** What is known of the peer by the end of a message. */
enum class OptionSupport : uint8_t {
  kUnknown,  ///< no answer came
  /**
   * An answer, or an error that is about this message. Of draft-00 only an answer is proof: a
   * server of draft-04 ends its messages with kChunkError, as one does that refuses them.
   */
  kSupported,
  kUnsupported,  ///< INVAL_OPTION, INVAL_PROC, the other draft, or no version 2 at all
};

/** How a message ended. */
struct OptionOutcome {
  /**
   * kOk: there is an answer. kRemoteError, kChunkError: an error, see error_code. kMalformedReply:
   * the answer was faulty. kVersionError: version 1 is spoken, or the other draft. kTooLarge: it
   * does not fit the peer's Receives, or with kAuto, until a first reply has settled the version,
   * 1024 bytes. Else as of a call.
   */
  CallStatus status = CallStatus::kConnectionLost;
  OptionSupport support = OptionSupport::kUnknown;
  uint32_t error_code = 0;  ///< rdma_err, of kRemoteError and kChunkError
  uint32_t type = 0;        ///< of the answer, as what follows
  std::vector<std::byte> info = {};
  std::vector<std::byte> payload = {};  ///< the RPC reply message, its XID first
};

class ClientConnection;

/** How a message ended. On the connection's poll core, in a pass of it; as a call's callback. */
using OptionDone = void (*)(OptionOutcome&& outcome, void* argument);
/**
 * Sends a message of a type of Version2ClientOptions::extensions, and has `done` called once when
 * its answer, or error, is there, or none can come; null: nobody is told. It takes a credit as a
 * call does, and waits for one; it is never sent again, and ends with kConnectionLost at once while
 * there is no connection. Any thread; does not wait, and allocates: it is not for the data path.
 *
 * Errors: kInvalidArgument, with nothing sent and no `done`: no such type in `extensions`, or the
 * request is not as the type wants it.
 *
 *   rrdk::send_option(*connection, {.type = 100, .info = bytes}, on_done, site);
 */
[[nodiscard]] Result<void> send_option(ClientConnection& connection, const OptionRequest& request,
                                       OptionDone done, void* argument);
/**
 * The same, and waits for the end; on an embedded runtime it polls the core meanwhile. Not in a
 * callback or handler on a poll core, where it would wait for itself: kInvalidArgument.
 */
[[nodiscard]] Result<OptionOutcome> send_option_and_wait(ClientConnection& connection,
                                                         const OptionRequest& request);

}  // namespace rrdk
