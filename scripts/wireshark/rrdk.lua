-- RPC-over-RDMA version 2, and testrpc's programs, for tshark and Wireshark (4.0 and later).
--
--   tshark -X lua_script:scripts/wireshark/rrdk.lua -r FILE
--   tshark -X lua_script:scripts/wireshark/rrdk.lua -o rpcordma2.draft:draft-00 -r FILE
--
-- or copy this file into Wireshark's folder for personal Lua plugins. No other setting is needed: it
-- switches rpc.dissect_unknown_programs on, without which testrpc's programs have no fields rpc. or perf.
--
-- rpcordma2.*  the header of version 2 (draft-cel-nfsv4-rpcrdma-version-two-04 or -00) over RoCE and
--              iWARP. The preference selects the draft, since messages do not say which one they
--              follow. Wireshark's own rpcordma, with the same field names, dissects version 1.
-- perf.*       testrpc's programs, behind either version.
--
-- Data moved by RDMA Read or Write is not put back into messages of version 2: for such an item of
-- testrpc's programs only the length is shown, and perf.moved has its name. Wireshark may call messages of
-- other programs malformed because the data is missing. Messages that are entirely in chunks are not shown.

local TYPES = {
  [0] = "RDMA2_MSG", "RDMA2_NOMSG", "RDMA2_MSGP", "RDMA2_DONE", "RDMA2_ERROR", "RDMA2_OPTIONAL",
  "RDMA2_CONNPROP", "RDMA2_REQPROP", "RDMA2_RESPROP", "RDMA2_UPDPROP",
}
local TYPES_OF_DRAFT = { [0] = "012345", [4] = "01456789" }
local MSG = 0
local MOST_BYTES = 1048576  -- of a Send: more than any Send has, and few enough not to flood the tree
-- Errors and their arguments: draft-00 section 4.2, draft-04 section 6.2.
local ERRORS = {
  [0] = { "RDMA_ERR_VERS vers_low vers_high", "RDMA_ERR_BAD_HEADER", "RDMA_ERR_INVAL_OPTION" },
  [4] = {
    "RDMA2_ERR_VERS vers_low vers_high", "RDMA2_ERR_BAD_XDR", "RDMA2_ERR_INVAL_PROC",
    "RDMA2_ERR_READ_CHUNKS max_chunks", "RDMA2_ERR_WRITE_CHUNKS max_chunks",
    "RDMA2_ERR_SEGMENTS max_segments", "RDMA2_ERR_WRITE_RESOURCE chunk_index length_needed",
    "RDMA2_ERR_REPLY_RESOURCE length_needed", "RDMA2_ERR_INVAL_OPTION", "RDMA2_ERR_SYSTEM",
  },
}
local DIRECTIONS = { [0] = "call", "reply" }
local PROPERTIES = { "RDMA2_PROPID_RBSIZ", "RDMA2_PROPID_BRS" }
local PROPERTY_FIELDS = { "rbsiz", "brs" }
local BACKWARD = { [0] = "RDMA2_BKREQSUP_NONE", "RDMA2_BKREQSUP_INLINE", "RDMA2_BKREQSUP_GENL" }

-- Adds fields to `into`, labelled with their names.
local function declare(into, prefix, kind, names, ...)
  for name in names:gmatch("%S+") do
    into[name] = ProtoField[kind](prefix .. name, name, ...)
  end
end

local rpcordma2, f = Proto("rpcordma2", "RPC-over-RDMA version 2"), {}
declare(f, "rpcordma2.", "uint32", "xid inv_handle rdma_handle nochg done rejected", base.HEX)
declare(f, "rpcordma2.", "uint32", [[
  version flow_control reads_count writes_count reply_count position segment_count rdma_length errcode
  vers_low vers_high max_chunks max_segments chunk_index length_needed opttype optinfo_length
  array_count property_length rbsiz]])
declare(f, "rpcordma2.", "uint32", "msg_type", base.DEC, TYPES)
declare(f, "rpcordma2.", "uint32", "direction", base.DEC, DIRECTIONS)
declare(f, "rpcordma2.", "uint32", "property", base.DEC, PROPERTIES)
declare(f, "rpcordma2.", "uint32", "brs", base.DEC, BACKWARD)
declare(f, "rpcordma2.", "uint64", "rdma_offset", base.HEX)
declare(f, "rpcordma2.", "bytes", "optinfo property_data")
rpcordma2.fields = f
local malformed = ProtoExpert.new("rpcordma2.malformed", "Malformed", expert.group.MALFORMED,
                                  expert.severity.ERROR)
local dubious = ProtoExpert.new("rpcordma2.dubious", "Against the draft", expert.group.PROTOCOL,
                                expert.severity.WARN)
rpcordma2.experts = { malformed, dubious }
rpcordma2.prefs.draft = Pref.enum("Draft", 4, "Which draft of version 2 the messages follow",
                                  { { 1, "draft-04", 4 }, { 2, "draft-00", 0 } }, false)

-- The errors for a header or a body that continues beyond its bytes, and for a list that neither continues nor
-- ends.
local ENDED, NO_BOOLEAN = {}, {}

-- Reads XDR (RFC 4506) in a Tvb from `at` up to `stop`, and shows it in the tree, if there is one.
local Reader = {}
Reader.__index = Reader

local function reader(tvb, at)
  return setmetatable({ tvb = tvb, at = at, stop = tvb:len() }, Reader)
end

function Reader:take(size)
  if size > self.stop - self.at then error(ENDED) end
  self.at = self.at + size
  return self.tvb(self.at - size, size)
end

function Reader:word(tree, field)
  local range = self:take(4)
  return range:uint(), tree and tree:add(field, range)
end

function Reader:hyper(tree, field)
  local range = self:take(8)
  if tree then tree:add(field, range) end
  return range:uint64()
end

-- Takes the bytes and their pad, if present.
function Reader:bytes(tree, field, length)
  if length == 0 then return end
  local range = self:take(length)
  if tree then tree:add(field, range) end
  self.at = math.min(self.at + -length % 4, self.stop)
end

function Reader:more()
  local word = self:word()
  if word > 1 then error(NO_BOOLEAN) end
  return word == 1
end

-- Calls `body`, which reads into a subtree and returns a value and text for the subtree's label.
function Reader:group(tree, name, body)
  local subtree, start = tree and tree:add(self.tvb(self.at, 0), name), self.at
  local value, text = body(self, subtree)
  if subtree then
    subtree:append_text(text or "")
    subtree:set_len(self.at - start)
  end
  return value
end

-- A list's length is a field, although it is not a word of the message.
local function count(tree, field, number)
  if tree then tree:add(field, number):set_generated() end
  return string.format(" (%d)", number)
end

local function segment(r, tree)
  r:word(tree, f.rdma_handle)
  local length = r:word(tree, f.rdma_length)
  return length, string.format(": %d bytes at 0x%s", length, r:hyper(tree, f.rdma_offset):tohex())
end

-- Returns the bytes of its segments.
local function chunk(r, tree)
  local length, segments = 0, (r:word(tree, f.segment_count))
  for _ = 1, segments do
    length = length + r:group(tree, "Segment", segment)
  end
  return length, string.format(": %d bytes, segments: %d", length, segments)
end

-- Returns the number of segments, and their positions as keys.
local function read_list(r, tree)
  local reads = { segments = 0 }
  while r:more() do
    reads.segments = reads.segments + 1
    r:group(tree, "Read segment", function(_, subtree)
      reads[r:word(subtree, f.position)] = true
      return segment(r, subtree)
    end)
  end
  return reads, count(tree, f.reads_count, reads.segments)
end

local function write_list(r, tree)
  local writes = {}
  while r:more() do
    writes[#writes + 1] = r:group(tree, "Write chunk", chunk)
  end
  return writes, count(tree, f.writes_count, #writes)
end

local function reply_chunk(r, tree)
  local length = r:more() and chunk(r, tree)
  return length, count(tree, f.reply_count, length and 1 or 0)
end

-- The same three lists in version 1 (RFC 5666 section 4.3) and in both drafts.
local function chunk_lists(r, tree)
  local lists = {}
  lists.reads = r:group(tree, "Read list", read_list)
  lists.writes = r:group(tree, "Write list", write_list)
  lists.reply = r:group(tree, "Reply chunk", reply_chunk)
  return lists
end

local function direction(r, tree, draft)
  if draft == 0 then return nil end
  local word, item = r:word(tree, f.direction)
  if word > 1 then item:add_proto_expert_info(dubious, "Neither call nor reply") end
  return DIRECTIONS[word]
end

-- The functions that read what follows the four words of all messages. They return a description, the
-- direction if the message has one, and its lists.
local function message_body(r, tree, draft)
  local way = direction(r, tree, draft)
  if draft == 4 then r:word(tree, f.inv_handle) end
  local lists, text = chunk_lists(r, tree), {}
  if lists.reads.segments > 0 then text[1] = "Read segments: " .. lists.reads.segments end
  if #lists.writes > 0 then text[#text + 1] = "Write chunks: " .. #lists.writes end
  if lists.reply then text[#text + 1] = "Reply chunk: " .. lists.reply .. " bytes" end
  return table.concat(text, ", "), way, lists
end

local function error_body(r, tree, draft)
  local code, item = r:word(tree, f.errcode)
  local name, arguments = (ERRORS[draft][code] or "unknown"):match("(%S+)(.*)")
  item:append_text(" (" .. name .. ")")
  local text = string.format("%s (%d)", name, code)
  for field in arguments:gmatch("%S+") do
    text = string.format("%s, %s %d", text, field, (r:word(tree, f[field])))
  end
  return text
end

local function optional_body(r, tree, draft)
  local way = direction(r, tree, draft)
  local kind = r:word(tree, f.opttype)
  r:bytes(tree, f.optinfo, (r:word(tree, f.optinfo_length)))
  return "option " .. kind, way
end

local function property(r, tree)
  local id, item = r:word(tree, f.property)
  local length = r:word(item, f.property_length)
  local field, value = f[PROPERTY_FIELDS[id]], reader(r.tvb, r.at)
  r:bytes(item, f.property_data, length)
  if field and length >= 4 then value:word(item, field) end  -- without a value: the default (draft-04 section 5.1.1)
end

-- The function for a message of `names`, in this order (draft-04 section 5.3). A name with a field is a
-- subset, where element N is bit N mod 32 of word N div 32; the others are sets.
local function properties(names)
  return function(r, tree)
    for name in names:gmatch("%S+") do
      r:group(tree, name, function(_, subtree)
        for _ = 1, (r:word(subtree, f.array_count)) do
          if f[name] then r:word(subtree, f[name]) else property(r, subtree) end
        end
      end)
    end
  end
end

local function nothing() end

local BODIES = {
  [0] = message_body, message_body, nothing, nothing, error_body, optional_body,
  properties("start nochg"), properties("want"), properties("done rejected other"), properties("now"),
}

local rpc, data = Dissector.get("rpc"), Dissector.get("data")

local function payload(r, pinfo, root, item, xid, kind, way)
  if r.at == r.stop then
    if kind == MSG then item:add_proto_expert_info(dubious, "No RPC message behind it") end
    return
  end
  local rest = r.tvb(r.at):tvb()
  local is_rpc = rest:len() >= 8 and rest(0, 4):uint() == xid and rest(4, 4):uint() <= 1
  if kind == MSG and not is_rpc then
    item:add_proto_expert_info(dubious, "What follows is no RPC message with this XID")
  elseif is_rpc and way and way ~= DIRECTIONS[rest(4, 4):uint()] then  -- draft-04 section 6.2.2
    item:add_proto_expert_info(dubious, "The RPC message has the other direction")
  end
  -- Raises an error if the RPC message ends early; it is in the tree by then.
  pcall(Dissector.call, is_rpc and rpc or data, rest, pinfo, root)
end

local frame, lists_at  -- the lists of the last frame with a message, by the offset of the RPC message

local function message(tvb, pinfo, root)
  local draft, item, r = rpcordma2.prefs.draft, root:add(rpcordma2, tvb()), reader(tvb, 0)
  local xid = r:word(item, f.xid)
  r:word(item, f.version)
  r:word(item, f.flow_control)
  local kind = r:word(item, f.msg_type)
  local known, ok, text, way, lists = TYPES_OF_DRAFT[draft]:find(kind, 1, true), true, nil, nil, nil
  if known then ok, text, way, lists = pcall(BODIES[kind], r, item, draft) end
  if not ok and text ~= ENDED and text ~= NO_BOOLEAN then error(text, 0) end
  local wrong = not known and "No such type of message" or text == ENDED and "The bytes end within it"
                or text == NO_BOOLEAN and "Neither 0 nor 1 where a list goes on or ends"
  text = wrong and "malformed" or text ~= "" and text
  pinfo.cols.protocol = "RPCoRDMA2"
  pinfo.cols.info = string.format("%s%s XID 0x%x%s", TYPES[kind], way and " " .. way or "", xid,
                                  text and ", " .. text or "")
  if wrong then
    item:add_proto_expert_info(malformed, wrong .. " (read as draft-0" .. draft .. ", rpcordma2.draft)")
    return
  end
  item:set_len(r.at)
  if frame ~= pinfo.number then frame, lists_at = pinfo.number, {} end
  lists_at[tvb:offset() + r.at] = lists
  payload(r, pinfo, root, item, xid, kind, way)
end

local parts, reassembled  -- Sends of several packets: the parts received, and the complete ones by frame
local calls, answered     -- { program, version, procedure }, see rpc_header()

function rpcordma2.init()
  parts, reassembled, calls, answered, frame = {}, {}, {}, {}, nil
end

local function is_version_two(tvb)
  return tvb:len() >= 16 and tvb:len() <= MOST_BYTES and tvb(4, 4):uint() == 2
         and TYPES[tvb(12, 4):uint()] ~= nil
end

-- The Send whose last packet this is, or nil.
local function put_together(tvb, pinfo, opcode, queue_pair)
  if pinfo.visited then return reassembled[pinfo.number] end
  local key = string.format("%s %s %d", pinfo.src, pinfo.dst, queue_pair)
  if opcode == 0 then
    parts[key] = is_version_two(tvb) and tvb():bytes() or nil
  elseif parts[key] then
    parts[key]:append(tvb():bytes())
  end
  if opcode > 1 then
    reassembled[pinfo.number], parts[key] = parts[key], nil
  end
  return reassembled[pinfo.number]
end

local opcode_of, queue_pair_of = Field.new("infiniband.bth.opcode"), Field.new("infiniband.bth.destqp")
local rdmap_opcodes = Field.new("iwarp_rdma.opcode")
-- InfiniBand specification, table 38: Sends of one packet; first, middle and last ones of longer Sends.
local ONLY = { [4] = true, [5] = true, [0x17] = true }
local PARTS = { [0] = true, true, true, true, [0x16] = true }

local function send_of_infiniband(tvb, pinfo)
  local opcode = opcode_of() and opcode_of().value
  if not PARTS[opcode] then return ONLY[opcode] and tvb end
  local bytes = put_together(tvb, pinfo, opcode, queue_pair_of().value)
  return bytes and bytes:tvb("RPC-over-RDMA message")
end

local function send_of_iwarp(tvb)
  local opcodes = { rdmap_opcodes() }  -- of the frame so far, which may contain more than this message
  local opcode = #opcodes > 0 and opcodes[#opcodes].value or 0
  return opcode >= 3 and opcode <= 6 and tvb  -- RFC 5040 section 4.2
end

local promoting = false

for list, send_of in pairs { ["infiniband.payload"] = send_of_infiniband, iwarp_ddp_rdmap = send_of_iwarp } do
  rpcordma2:register_heuristic(list, function(tvb, pinfo, root)
    if promoting then return true end
    local send = send_of(tvb, pinfo)
    if not send or not is_version_two(send) then return false end
    message(send, pinfo, root)
    return true
  end)
end

-- Wireshark first tries the heuristic that accepted the last message, and rpcordma's accepts some messages
-- of version 2 only to show nothing, or an error. Ours then accepts nothing, and so comes first again.
local function promote(tvb, pinfo, tree)
  promoting = true
  DissectorTable.try_heuristics(rdmap_opcodes() and "iwarp_ddp_rdmap" or "infiniband.payload", tvb, pinfo,
                                tree)
  promoting = false
end

-- perf.x: the name, arguments and results of each procedure, and their descriptions. <> is an opaque, <*>
-- one that RDMA may move (the Upper Layer Binding); nothing follows a status other than 0.
local NULL, ECHO = { "NULL", "", "", "", "" }, { "ECHO", "data<>", "$data bytes", "data<>", "$data bytes" }
local PROGRAMS = {
  [0x20005666] = {
    name = "PERF",
    [0] = NULL,
    ECHO,
    { "READ", "offset count flags delay_us", "$count bytes at $offset",
      "status crc32c data<*>", "$data bytes" },
    { "WRITE", "offset flags delay_us data<*>", "$data bytes at $offset",
      "status count crc32c", "$count bytes" },
    { "SANDWICH", "head<> flags data<*> tail<>", "$head, $data and $tail bytes",
      "status head_crc32c data_crc32c tail_crc32c data_count", "$data_count bytes" },
    { "READ2", "offset count1 count2 flags", "$count1 and $count2 bytes at $offset",
      "status first<*> crc32c_first second<*> crc32c_second", "$first and $second bytes" },
    { "CALLBACK", "count size", "$count calls of $size bytes", "answered", "$answered answered" },
  },
  [0x20005667] = { name = "PERF_CB", [0] = NULL, ECHO },
}
local STATUS = { [0] = "PERF_OK", "PERF_ERR_INVAL", "PERF_ERR_TOOBIG" }
-- accept_stat (RFC 5531 section 9).
local FAILURES = { "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR" }

local perf, p = Proto("perf", "RRDK testrpc"), {}
declare(p, "perf.", "uint32", [[
  count count1 count2 delay_us size answered data_count procedure
  data_length head_length tail_length first_length second_length]])
declare(p, "perf.", "uint32", "flags crc32c head_crc32c data_crc32c tail_crc32c crc32c_first crc32c_second",
        base.HEX)
declare(p, "perf.", "uint32", "status", base.DEC, STATUS)
declare(p, "perf.", "uint64", "offset")
declare(p, "perf.", "bytes", "data head tail first second")
declare(p, "perf.", "string", "name moved")
perf.fields = p

-- Shows arguments or results and puts them into `values`. Only the length of an item moved by RDMA is
-- available: a Read chunk's Position refers to the whole message (RFC 5666 section 3.4), and Write chunks
-- are in the order of the items.
local function perf_body(r, tree, schema, values, start, is_call, lists)
  local moved_bytes, eligible = 0, 0
  for name, kind in schema:gmatch("([%w_]+)(%S*)") do
    if kind == "" then
      values[name] = name == "offset" and tostring(r:hyper(tree, p.offset)) or r:word(tree, p[name])
      if name == "status" and values.status ~= 0 then return end
    else
      local length = r:word(tree, p[name .. "_length"])
      values[name], eligible = length, eligible + (kind == "<*>" and 1 or 0)
      local in_chunk = is_call and lists.reads[r.at - start + moved_bytes]
                       or not is_call and kind == "<*>" and (lists.writes[eligible] or 0) > 0
      if in_chunk and length > 0 then
        tree:add(p.moved, name):set_generated()
        moved_bytes = moved_bytes + length + -length % 4
      else
        r:bytes(tree, p[name], length)
      end
    end
  end
end

local function skip_auth(r)
  r:word()
  r:bytes(nil, nil, (r:word()))
end

-- Returns the same key for both messages of a call.
local function key_of(pinfo, xid, is_call)
  local from, to = tostring(pinfo.src), tostring(pinfo.dst)
  if pinfo.src_port ~= 0xffffffff then  -- known; a queue pair is known from its connection's handshake on
    from, to = from .. ":" .. pinfo.src_port, to .. ":" .. pinfo.dst_port
  end
  return string.format("%s %s %d", is_call and from or to, is_call and to or from, xid)
end

-- Reads an RPC header (RFC 5531 section 9). Returns the call's { program, version, procedure } if it is
-- known, whether this is the call, and for a reply the text in place of results.
local function rpc_header(r, pinfo)
  local place, xid, is_call = pinfo.number .. " " .. r.at, r:word(), r:word() == 0
  local key = key_of(pinfo, xid, is_call)
  if is_call then
    r:word()
    calls[key] = { r:word(), r:word(), r:word() }  -- word() has a second result only with a tree
    skip_auth(r)
    skip_auth(r)
    return calls[key], true
  end
  answered[place] = answered[place] or calls[key]
  if r:word() ~= 0 then return answered[place], false, "denied" end
  skip_auth(r)
  local state = r:word()
  return answered[place], false, state ~= 0 and (FAILURES[state] or state)
end

local xids, bodies, headers = Field.new("rpc.xid"), Field.new("data.data"), Field.new("rpcordma")

-- The lists before the RPC message at `offset`, in version 1 from byte 16 of the header on.
local function lists_before(offset, pinfo)
  for _, header in ipairs { headers() } do
    local r = reader(header.source, header.offset + 16)
    local ok, lists = pcall(chunk_lists, r)
    if ok and r.at == offset then return lists end
  end
  return frame == pinfo.number and lists_at[offset] or { reads = {}, writes = {} }
end

-- Shows the RPC message that begins with `xid` if it is one of testrpc's. Returns a description.
local function perf_message(xid, pinfo, root)
  local r = reader(xid.source, xid.offset)
  local ok, call, is_call, failure = pcall(rpc_header, r, pinfo)
  local program = ok and call and call[2] == 1 and PROGRAMS[call[1]]
  local procedure = program and program[call[3]]
  if not procedure then return nil end
  r.stop = r.at
  for _, bytes in ipairs { bodies() } do
    if bytes.offset == r.at then r.stop = r.at + bytes.len end
  end
  local tree, values, whole, why = root:add(perf, r.tvb(r.at, r.stop - r.at)), {}, true, nil
  tree:add(p.procedure, call[3]):set_generated()
  tree:add(p.name, procedure[1]):set_generated()
  if not failure then
    whole, why = pcall(perf_body, r, tree, procedure[is_call and 2 or 4], values, xid.offset, is_call,
                       lists_before(xid.offset, pinfo))
    if not whole and why ~= ENDED then error(why, 0) end
  end
  local status = (values.status or 0) ~= 0 and (STATUS[values.status] or values.status)
  local text = failure or not whole and "not whole" or status
               or procedure[is_call and 3 or 5]:gsub("%$([%w_]+)", values)
  text = string.format("%s %s %s%s%s", program.name, procedure[1], is_call and "call" or "reply",
                       text ~= "" and ", " or "", text)
  tree:append_text(": " .. text)
  return text
end

function perf.dissector(tvb, pinfo, root)
  local texts = {}
  for _, xid in ipairs { xids() } do
    texts[#texts + 1] = perf_message(xid, pinfo, root)
  end
  if #texts > 0 then
    pinfo.cols.protocol = "PERF"
    pinfo.cols.info = table.concat(texts, "; ")
  end
  if frame ~= pinfo.number and (xids() or headers()) and (opcode_of() or rdmap_opcodes()) then
    promote(tvb, pinfo, root)
  end
end

register_postdissector(perf)
set_preference("rpc.dissect_unknown_programs", true)
