-- Store.take_slot; slots.py has the rule. `per_node` is the limit of one node (0: none).
-- Returns {1, node to avoid, ...}, {0}, or {0, node}: such starts are held until that node is below its limit.
-- args: now:number id limit:number until_ms per_node:number placement_key
if not intact() then return redis.error_reply('LOST') end
local SLOW_MS = 5000
local slots = P .. 'slots'
redis.call('ZREMRANGEBYSCORE', slots, '-inf', a.now)

-- First, since the head of every replica's queue asks for each slot that is freed, and all else reads all slots.
local has_one = redis.call('ZSCORE', slots, a.id)
if not has_one and redis.call('ZCARD', slots) >= a.limit then
  redis.call('SET', P .. 'wanted', '1')
  return {0}
end

local on, where, unplaced, preferring = {}, {}, 0, 0

-- How many of the starts without a node avoid nodes and have this placement key; sets `unplaced`, without this start.
local function look()
  local ids
  on, where, ids = starts()
  local preferences = entries('preferences')
  for _, id in ipairs(ids) do
    local preference = preferences[id]
    preferences[id] = nil
    if id ~= a.id then
      unplaced = unplaced + 1
      if preference and preference:match('\n\n(.*)$') == a.placement_key then preferring = preferring + 1 end
    end
  end
  drop('preferences', preferences)
end

-- The set of nodes all of whose starts came more than SLOW_MS ago.
local function slow()
  local found, came = {}, entries('came')
  for node in pairs(on) do found[node] = true end
  for id, node in pairs(where) do
    if a.now - tonumber(came[id] or 0) <= SLOW_MS then found[node] = nil end
    came[id] = nil
  end
  drop('came', came)
  return found
end

-- The busiest node's starts; of nodes that are neither in `avoid` nor in `slowly` only.
local function most(avoid, slowly)
  local count = 0
  for node, here in pairs(on) do
    if not avoid[node] and not slowly[node] then count = math.max(count, here) end
  end
  return count
end

local avoid, names, slowly = {}, {}, {}
if a.per_node > 0 then
  look()
  -- As long as no node can reach its limit it does not matter which are slow. Then only what has piled up is dropped.
  local full = unplaced + most({}, {}) >= a.per_node
  local piled_up = redis.call('HLEN', P .. 'came') > 2 * redis.call('ZCARD', slots) + 64
  if full or piled_up or redis.call('EXISTS', P .. 'fulfilled') == 1 then slowly = slow() end
  for node, here in pairs(on) do
    if here + (slowly[node] and unplaced or 0) >= a.per_node then avoid[node], names[#names + 1] = true, node end
  end
  if next(slowly) == nil and most({}, {}) < a.per_node then redis.call('DEL', P .. 'fulfilled') end
end

-- Whether one more start that avoids nodes may go without a node, beside others.
local function may_avoid()
  if #names >= math.ceil(a.limit / a.per_node) or unplaced + most({}, {}) >= 2 * a.per_node then return false end
  return preferring <= tonumber(redis.call('HGET', P .. 'fulfilled', a.placement_key) or 0)
end

local function refusal()
  if has_one or a.per_node == 0 then return nil end
  local node = redis.call('HGET', P .. 'held', a.placement_key)
  if node and may_have(node) >= a.per_node then return {0, node} end
  if node then redis.call('HDEL', P .. 'held', a.placement_key) end
  if unplaced == 0 then return nil end
  if unplaced + most(avoid, slowly) >= a.per_node then return {0} end
  if #names > 0 and not may_avoid() then return {0} end
end

local refused = refusal()
if refused then
  redis.call('SET', P .. 'wanted', '1')
  return refused
end
redis.call('ZADD', slots, a.until_ms, a.id)
redis.call('HDEL', P .. 'preferences', a.id)
if #names > 0 and not where[a.id] then
  local nodes = '\n' .. table.concat(names, '\n') .. '\n\n'
  redis.call('HSET', P .. 'preferences', a.id, nodes .. a.placement_key)
end
local answer = {1}
for _, node in ipairs(names) do answer[#answer + 1] = node end
return answer
