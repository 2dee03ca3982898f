-- Precedes every script. KEYS[1] is the prefix of all keys; its hash tag keeps them in one slot of a Redis cluster.
--   s:<id>            hash: version state owner key ended record writer holder cpu memory gpu weighed; of a warm
--                     sandbox also template own. `weighed` is the state in which `used:` counts it: other versions
--                     of the control plane change only `state`
--   in:<state>, of:<owner>:<state>   sorted sets of ids by creation
--   keys              hash: owner and idempotency key -> id
--   withdrawn         sorted set of withdrawn keys (owner and key, perhaps also a call) by when they were withdrawn
--   counts            hash: state -> how many
--   tombs             sorted set of ended ids by their confirmation
--   expiries, deadlines, ends   sorted sets: live ids by expiry, unready ids by start deadline, ending ids by end
--   slots             sorted set of ids with a start slot by when it expires; also of those kept for a replica
--   lease:<name>      hash: holder until
--   note:<name>       hash: text until
--   warm:<template>   sorted set of warm ids by when they are ready
--   claim:<id>        the sandbox that a claim got, kept for CLAIM_MS for a retry of the claim
--   group:<owner>\n<name>   sorted set of a group's ended ids by their confirmation
--   used:<owner>      hash: sandboxes cpu_millicores memory_bytes gpu starting; `used:` alone is of all owners together
--   owners            set of the owners that may have `used:`; `recount.lua` removes those without a live sandbox
--   wanting           sorted set of what replicas would ask for (replica, limit, per_node, placement key, one a line) by
--                     when they asked
--   placed            hash: id -> node, of start slots; entries without a slot are dropped by `starts`
--   came              hash: id -> when it was placed; `slot_for` drops those without a slot, and of `preferences`
--   preferences       hash: id -> the nodes that it avoids and its placement key; of start slots without a node
--   fulfilled         hash: placement key -> how many starts that avoid nodes were placed as preferred, in succession
--   held              hash: placement key -> the full node for which such starts wait
--   intact            the name of the store's content; missing: the store is lost
--   rebuild           hash: holder until filling, of a rebuild under way
--   run               the `run_id` of the Redis process that was seen last
--
-- A row is one sandbox as it is to be stored. `record` is its record; `message` is the JSON object to which
-- that is added for other replicas, '' if nothing is published; `template`, `ready` and `own` (what a claim keeps of
-- the record) are those of a warm sandbox. All JSON is whole.
-- row: now:number writer holder id version state owner key created expires deadline ending cpu memory gpu
-- row: record message template ready own group call
local P = KEYS[1]
local DAY_MS, TRIM, MOST_TOMBS, MOST_WITHDRAWN, CLAIM_MS, HELD_MS = 86400000, 32, 86400, 100000, 60000, 600000
-- `slots.py` has the same numbers.
local SLOW_MS, KEPT_MS, WANTING_MS = 5000, 250, 2500
local LIVE = {requested = true, queued = true, starting = true, warm = true, running = true}
local UNREADY = {requested = true, queued = true, starting = true}
local RESOURCES = {'sandboxes', 'cpu_millicores', 'memory_bytes', 'gpu', 'starting'}

local sub = string.sub
-- One JSON object with the members of three, which have no member in common.
local function merged(one, two, three)
  return sub(one, 1, -2) .. ',' .. sub(two, 2, -2) .. ',' .. sub(three, 2)
end

local function read(id)
  local f = redis.call('HMGET', P .. 's:' .. id, 'version', 'state', 'owner', 'key', 'ended', 'writer', 'record',
    'cpu', 'memory', 'gpu', 'template', 'own', 'weighed', 'holder')
  if not f[1] then return nil end
  return {id = id, version = f[1], state = f[2], owner = f[3], key = f[4], ended = f[5], writer = f[6], record = f[7],
    cpu = f[8] or '0', memory = f[9] or '0', gpu = f[10] or '0', template = f[11] or '',
    own = f[12] or '', counted_as = f[13] or '', holder = f[14] or ''}
end

-- What one sandbox uses in a state, in the order of RESOURCES.
local function weight(s, state)
  if not LIVE[state] then return {0, 0, 0, 0, 0} end
  return {1, tonumber(s.cpu), tonumber(s.memory), tonumber(s.gpu), UNREADY[state] and 1 or 0}
end

local function use(owner, heavier, lighter)
  for i, resource in ipairs(RESOURCES) do
    local more = heavier[i] - lighter[i]
    if more ~= 0 then
      local used = redis.call('HINCRBY', P .. 'used:' .. owner, resource, string.format('%.0f', more))
      -- So that an owner that uses nothing has no key: Redis deletes an empty hash.
      if used == 0 then redis.call('HDEL', P .. 'used:' .. owner, resource) end
    end
  end
end

local NOTHING = {0, 0, 0, 0, 0}
-- A record that was never counted (a version without `used:` wrote it) is not subtracted; its next write counts it.
local function reweigh(new, old)
  local after, before = new and weight(new, new.state) or NOTHING, old and weight(old, old.counted_as) or NOTHING
  use('', after, before)
  if new and old and new.owner == old.owner then return use(new.owner, after, before) end
  if old then use(old.owner, NOTHING, before) end
  if new then use(new.owner, after, NOTHING) end
end

-- The first resource of which the owner's quota (`most_`, 0 is none) leaves no room: {resource, used, limit}, or nil.
local function excess(new)
  local wanted = weight(new, new.state)
  local limits = {a.most_sandboxes, a.most_cpu_millicores, a.most_memory_bytes, a.most_gpu, a.most_starting}
  for i, resource in ipairs(RESOURCES) do
    local limit = tonumber(limits[i])
    if limit > 0 and wanted[i] > 0 then
      local used = tonumber(redis.call('HGET', P .. 'used:' .. new.owner, resource) or '0')
      if used + wanted[i] > limit then return {resource, used, limit} end
    end
  end
end

local function leave(old)
  redis.call('HINCRBY', P .. 'counts', old.state, -1)
  redis.call('ZREM', P .. 'in:' .. old.state, old.id)
  redis.call('ZREM', P .. 'of:' .. old.owner .. ':' .. old.state, old.id)
end

local function free_key(old)
  if old.key ~= '' and redis.call('HGET', P .. 'keys', old.key) == old.id then
    redis.call('HDEL', P .. 'keys', old.key)
  end
end

local function bury(old)
  leave(old)
  reweigh(nil, old)
  free_key(old)
  redis.call('DEL', P .. 's:' .. old.id)
  redis.call('ZREM', P .. 'tombs', old.id)
end

-- Drops a few old tombstones at every step, so that no call has to wait until a day's worth is dropped.
local function trim(now)
  local over = redis.call('ZCARD', P .. 'tombs') - MOST_TOMBS
  local gone = redis.call('ZRANGEBYSCORE', P .. 'tombs', '-inf', now - DAY_MS, 'LIMIT', 0, TRIM)
  if over > 0 then gone = redis.call('ZRANGE', P .. 'tombs', 0, math.min(over, TRIM) - 1) end
  for _, id in ipairs(gone) do
    local old = read(id)
    if old then bury(old) else redis.call('ZREM', P .. 'tombs', id) end
  end
  redis.call('ZREMRANGEBYSCORE', P .. 'withdrawn', '-inf', now - DAY_MS)
end

local function known(key, now)
  local id = key ~= '' and redis.call('HGET', P .. 'keys', key)
  local old = id and read(id)
  if not old then return nil end
  if old.ended ~= '' and tonumber(old.ended) <= now - DAY_MS then
    bury(old)
    return nil
  end
  return old
end

local function moment(set, id, wanted, at)
  if wanted then redis.call('ZADD', P .. set, at, id) else redis.call('ZREM', P .. set, id) end
end

-- The entries of one of the hashes by id.
local function entries(name)
  local found, flat = {}, redis.call('HGETALL', P .. name)
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

-- Drops what is left of entries that have no slot.
local function drop(name, left)
  for id in pairs(left) do redis.call('HDEL', P .. name, id) end
end

-- How many start slots each node has, the node of each start that has one, and a list of the starts without a node.
local function starts()
  local on, where, unplaced, placed = {}, {}, {}, entries('placed')
  for _, id in ipairs(redis.call('ZRANGE', P .. 'slots', 0, -1)) do
    local node = placed[id]
    if node then on[node] = (on[node] or 0) + 1 else unplaced[#unplaced + 1] = id end
    where[id], placed[id] = node, nil
  end
  drop('placed', placed)
  return on, where, unplaced
end

-- How many starts the node has, and those without a node that do not avoid it.
local function may_have(node)
  local on, _, unplaced = starts()
  local count = on[node] or 0
  for _, id in ipairs(unplaced) do
    local preference = redis.call('HGET', P .. 'preferences', id)
    local avoids = preference and preference:match('^(.-\n)\n'):find('\n' .. node .. '\n', 1, true)
    if not avoids then count = count + 1 end
  end
  return count
end


-- The answer to a start that asks for a slot; slots.py has the rule. `id` is '' for one that is not known yet.
-- {0}, or {0, node} (held until that node is below its limit), or {1, node to avoid, ...} and the nodes that starts have.
local function slot_for(id, now, limit, per_node, key)
  local has_one = redis.call('ZSCORE', P .. 'slots', id)
  -- First, since it is asked for often while all are taken, and all else reads all slots.
  if not has_one and redis.call('ZCARD', P .. 'slots') >= limit then return {0} end
  if per_node == 0 then return {1}, {} end
  local on, where, ids = starts()
  local avoid, answer, slowly, unplaced, preferring = {}, {1}, {}, 0, 0
  local preferences = entries('preferences')
  for _, one in ipairs(ids) do
    local preference = preferences[one]
    preferences[one] = nil
    if one ~= id then
      unplaced = unplaced + 1
      if preference and preference:match('\n\n(.*)$') == key then preferring = preferring + 1 end
    end
  end
  drop('preferences', preferences)
  -- The busiest node's starts; of nodes that are neither avoided nor slow only.
  local most, others = 0, 0
  for _, here in pairs(on) do most = math.max(most, here) end
  -- As long as no node can reach its limit it does not matter which are slow. Then only what has piled up is dropped.
  local piled_up = redis.call('HLEN', P .. 'came') > 2 * redis.call('ZCARD', P .. 'slots') + 64
  if unplaced + most >= per_node or piled_up or redis.call('EXISTS', P .. 'fulfilled') == 1 then
    local came = entries('came')
    for node in pairs(on) do slowly[node] = true end
    for one, node in pairs(where) do
      if now - tonumber(came[one] or 0) <= SLOW_MS then slowly[node] = nil end
      came[one] = nil
    end
    drop('came', came)
  end
  for node, here in pairs(on) do
    if here + (slowly[node] and unplaced or 0) >= per_node then
      avoid[node], answer[#answer + 1] = true, node
    elseif not slowly[node] then
      others = math.max(others, here)
    end
  end
  if next(slowly) == nil and most < per_node then redis.call('DEL', P .. 'fulfilled') end
  if has_one then return answer, where end
  local node = redis.call('HGET', P .. 'held', key)
  if node and may_have(node) >= per_node then return {0, node} end
  if node then redis.call('HDEL', P .. 'held', key) end
  if unplaced == 0 then return answer, where end
  if unplaced + others >= per_node then return {0} end
  if #answer > 1 then
    if #answer - 1 >= math.ceil(limit / per_node) or unplaced + most >= 2 * per_node then return {0} end
    if preferring > tonumber(redis.call('HGET', P .. 'fulfilled', key) or 0) then return {0} end
  end
  return answer, where
end

-- Tells the replicas that may have a slot now, the one that asked longest ago first, and keeps one for each.
local function wake(now)
  redis.call('ZREMRANGEBYSCORE', P .. 'wanting', '-inf', now - WANTING_MS)
  local wanting = redis.call('ZRANGE', P .. 'wanting', 0, -1)
  if #wanting == 0 then return end
  redis.call('ZREMRANGEBYSCORE', P .. 'slots', '-inf', now)
  for _, one in ipairs(wanting) do
    local replica, limit, per_node, key = one:match('^([^\n]*)\n(%d+)\n(%d+)\n(.*)$')
    if slot_for('', now, tonumber(limit), tonumber(per_node), key)[1] == 1 then
      redis.call('ZREM', P .. 'wanting', one)
      redis.call('ZADD', P .. 'slots', now + KEPT_MS, 'kept:' .. replica)
      local told = '{"slot":' .. cjson.encode(replica) .. ',"key":' .. cjson.encode(key) .. '}'
      redis.call('PUBLISH', P .. 'feed', told)
    end
  end
end

local function put(new, old)
  local moved = not old or old.state ~= new.state or old.owner ~= new.owner
  if old and moved then leave(old) end
  if old and old.key ~= new.key then free_key(old) end
  reweigh(new, old)
  if moved then
    redis.call('HINCRBY', P .. 'counts', new.state, 1)
    redis.call('ZADD', P .. 'in:' .. new.state, new.created, new.id)
    redis.call('ZADD', P .. 'of:' .. new.owner .. ':' .. new.state, new.created, new.id)
    if LIVE[new.state] then redis.call('SADD', P .. 'owners', new.owner) end
  end
  if new.key ~= '' then redis.call('HSETNX', P .. 'keys', new.key, new.id) end
  local ended = ''
  if new.state == 'ended' then
    ended = (old and old.ended ~= '' and old.ended) or tostring(new.now)
    redis.call('ZADD', P .. 'tombs', ended, new.id)
    if new.group ~= '' then
      local group = P .. 'group:' .. new.owner .. '\n' .. new.group
      redis.call('ZADD', group, ended, new.id)
      -- `bury` does not remove ids from it: old ones are dropped with the next end, or the whole key expires.
      redis.call('ZREMRANGEBYSCORE', group, '-inf', new.now - DAY_MS)
      redis.call('PEXPIRE', group, DAY_MS)
    end
  end
  moment('expiries', new.id, LIVE[new.state], new.expires)
  moment('deadlines', new.id, UNREADY[new.state], new.deadline)
  -- Here, and not by the replica that runs the start: that one may have died, and another one accepted the push.
  local freed = not UNREADY[new.state] and redis.call('ZREM', P .. 'slots', new.id) == 1
  moment('ends', new.id, new.state == 'ending', new.ending)
  if old and old.template ~= '' then moment('warm:' .. old.template, new.id, false) end
  if new.template ~= '' then moment('warm:' .. new.template, new.id, true, new.ready) end
  redis.call('HSET', P .. 's:' .. new.id, 'version', new.version, 'state', new.state, 'owner', new.owner,
    'key', new.key, 'ended', ended, 'record', new.record, 'writer', new.writer, 'holder', new.holder,
    'cpu', new.cpu, 'memory', new.memory, 'gpu', new.gpu, 'template', new.template, 'own', sub(new.own, 2, -2),
    'weighed', new.state)
  if new.message ~= '' then
    redis.call('PUBLISH', P .. 'feed', sub(new.message, 1, -2) .. ',"sandbox":' .. new.record .. '}')
  end
  if freed then wake(new.now) end
end

local function intact()
  return redis.call('EXISTS', P .. 'intact') == 1
end

local function taken_back(key)
  return redis.call('ZSCORE', P .. 'withdrawn', key)
end

-- Why nothing is stored: the key is taken (by `old`) or withdrawn, or there is no room; nil when there is room.
local function refused(new, old, limit)
  if old then return {'known', old.record} end
  if new.key ~= '' and (taken_back(new.key) or taken_back(new.key .. '\n' .. new.call)) then return {'withdrawn', ''} end
  -- Before the total: an owner over its own quota must not make unclaimed sandboxes give way.
  local over = excess(new)
  if over then return {'full', over} end
  local used = tonumber(redis.call('HGET', P .. 'used:', 'sandboxes') or '0')
  if limit > 0 and used >= limit then return {'full', {'total', used, limit}} end
end
