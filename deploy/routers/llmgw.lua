-- Which model a request is for: the top-level `model` of a JSON object, or the field `model` of a form with files.
-- One file for HAProxy (lua-load: the converter `lua.llmgw_model`) and Envoy (the Lua filter of envoy.yaml).
-- Lua 5.1 (LuaJIT) to 5.4. Nothing else of a body is looked at; two `model`s are none, since readers may differ.

local ESCAPES = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t"}

local function utf8_of(n)
  local function tail(by) return 128 + math.floor(n / by) % 64 end
  if n < 128 then return string.char(n) end
  if n < 2048 then return string.char(192 + math.floor(n / 64), tail(1)) end
  if n < 65536 then return string.char(224 + math.floor(n / 4096), tail(64), tail(1)) end
  return string.char(240 + math.floor(n / 262144), tail(4096), tail(64), tail(1))
end

-- A JSON string's inside, decoded; nil where it is unsound.
local function plain(s)
  local out, at = {}, 1
  while true do
    local e = string.find(s, "\\", at, true)
    out[#out + 1] = string.sub(s, at, (e or 0) - 1)
    if not e then return table.concat(out) end
    local c = string.sub(s, e + 1, e + 1)
    at = e + 2
    if c == "u" then
      local n = tonumber(string.sub(s, at, at + 3), 16)
      if not n then return nil end
      at = at + 4
      if n >= 0xD800 and n < 0xDC00 and string.sub(s, at, at + 1) == "\\u" then
        local low = tonumber(string.sub(s, at + 2, at + 5), 16)
        if low and low >= 0xDC00 and low < 0xE000 then
          n, at = 0x10000 + (n - 0xD800) * 0x400 + (low - 0xDC00), at + 6
        end
      end
      out[#out + 1] = utf8_of(n)
    else
      out[#out + 1] = ESCAPES[c] or c
    end
  end
end

-- Where a string that begins at `at` ends; nil where it does not.
local function string_end(text, at)
  while true do
    local e = string.find(text, '["\\]', at + 1)
    if not e then return nil end
    if string.sub(text, e, e) == '"' then return e end
    at = e + 1
  end
end

-- Name, and where the inside of its string begins and ends. Of a text that was cut off, what it has so far.
local function in_json(text)
  local at, depth, is_key, key = 1, 0, false, nil
  local name, first, last
  while true do
    local p = string.find(text, depth == 1 and '["{}%[%],:]' or '["{}%[%]]', at)
    if not p then return name, first, last end
    local c = string.sub(text, p, p)
    at = p + 1
    if c == '"' then
      local e = string_end(text, p)
      if not e then return name, first, last end
      if depth == 1 and is_key then
        key = plain(string.sub(text, p + 1, e - 1))
      elseif depth == 1 and key == "model" then
        if name then return nil end
        name, first, last = plain(string.sub(text, p + 1, e - 1)), p + 1, e - 1
      end
      at = e + 1
    elseif c == "{" or c == "[" then
      if depth == 0 and c == "[" then return nil end
      depth, is_key = depth + 1, depth == 0
    elseif c == "}" or c == "]" then
      depth = depth - 1
      if depth <= 0 then return name, first, last end
    elseif c == "," then
      is_key, key = true, nil
    else
      is_key = false
    end
  end
end

local function in_form(text)
  local boundary = string.match(text, "^(%-%-[^\r\n]+)\r\n")
  if not boundary then return nil end
  local at, name, first, last = 1, nil, nil, nil
  while true do
    local _, line = string.find(text, boundary .. "\r\n", at, true)
    if not line then return name, first, last end
    local gap, begin = string.find(text, "\r\n\r\n", line - 1, true)
    local stop = begin and string.find(text, "\r\n" .. boundary, begin - 1, true)
    if not stop then return name, first, last end
    local head = ";" .. string.lower(string.sub(text, line + 1, gap)) .. ";"
    if string.find(head, '[;%s]name="?model"?%s*[;\r\n]') and string.find(head, "content%-disposition:") then
      if name then return nil end
      name, first, last = string.sub(text, begin + 1, stop - 1), begin + 1, stop - 1
    end
    at = stop
  end
end

local function model_of(text)
  if string.sub(text, 1, 2) == "--" then return in_form(text) end
  return in_json(text)
end

if core and core.register_converters then
  core.register_converters("llmgw_model", function(text) return (model_of(text)) or "" end)
end

local function refuse(handle, status, message)
  handle:respond({[":status"] = status, ["content-type"] = "application/json"},
    '{"error":{"message":"' .. message .. '","type":"invalid_request_error","code":' .. status .. "}}")
end

-- Envoy: the name goes into a header that routes match; then the name that the engine serves under from the route
-- into the body.
function envoy_on_request(handle)
  handle:headers():remove("x-llmgw-model")
  local encoding = handle:headers():get("content-encoding")
  if encoding and encoding ~= "identity" then
    return refuse(handle, "415", "send the body without a Content-Encoding")
  end
  local body = handle:body()
  if not body then return end
  local text = body:getBytes(0, body:length())
  local name, first, last = model_of(text)
  if not name or name == "" then return refuse(handle, "400", "the request body has no `model`, or more than one") end
  handle:headers():replace("x-llmgw-model", name)  -- asked for anew: it does not outlive the wait for the body
  handle:clearRouteCache()
  local served = handle:metadata():get("served_name")
  if served and served ~= name then
    if string.sub(text, 1, 2) ~= "--" then served = string.gsub(served, '[\\"]', "\\%0") end
    body:setBytes(string.sub(text, 1, first - 1) .. served .. string.sub(text, last + 1))
  end
end
