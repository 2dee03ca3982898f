-- Stands before every script. KEYS[1] is the prefix of all keys; its hash tag keeps them in one slot of a cluster.
--   s:<id>            hash: version state owner key expires deadline ended record writer holder
--   in:<state>, of:<owner>:<state>   sorted sets of ids by creation
--   keys              hash: owner and idempotency key -> id          withdrawn   the same -> when
--   counts            hash: state -> how many                        tombs       ended ids by their end
--   expiries, deadlines, ends   live ids by expiry, unready ids by deadline, ending ids by end
--   slots             start slots by when they lapse                 lease:<n>   hash: holder until
--   wanted            there when somebody was refused a slot since the last one was freed
local P = KEYS[1]
local DAY_MS, TRIM, MOST_TOMBS, MOST_WITHDRAWN = 86400000, 32, 86400, 100000
local LIVE = {requested = true, queued = true, starting = true, running = true}
local UNREADY = {requested = true, queued = true, starting = true}

local function read(id)
  local f = redis.call('HMGET', P .. 's:' .. id, 'version', 'state', 'owner', 'key', 'ended', 'writer', 'record')
  if not f[1] then return nil end
  return {id = id, version = f[1], state = f[2], owner = f[3], key = f[4], ended = f[5], writer = f[6], record = f[7]}
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
  free_key(old)
  redis.call('DEL', P .. 's:' .. old.id)
  redis.call('ZREM', P .. 'tombs', old.id)
end

-- A little at every step: nobody waits for a day's tombstones to go.
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

-- What `rows.py` sends: ARGV[1..14].
local function row()
  return {now = tonumber(ARGV[1]), writer = ARGV[2], holder = ARGV[3], id = ARGV[4], version = ARGV[5],
    state = ARGV[6], owner = ARGV[7], key = ARGV[8], created = ARGV[9], expires = ARGV[10], deadline = ARGV[11],
    ending = ARGV[12], record = ARGV[13], news = ARGV[14]}
end

local function put(new, old)
  if old and old.state ~= new.state then leave(old) end
  if old and old.key ~= new.key then free_key(old) end
  if not old or old.state ~= new.state then
    redis.call('HINCRBY', P .. 'counts', new.state, 1)
    redis.call('ZADD', P .. 'in:' .. new.state, new.created, new.id)
    redis.call('ZADD', P .. 'of:' .. new.owner .. ':' .. new.state, new.created, new.id)
  end
  if new.key ~= '' then redis.call('HSETNX', P .. 'keys', new.key, new.id) end
  local ended = ''
  if new.state == 'ended' then
    ended = (old and old.ended ~= '' and old.ended) or tostring(new.now)
    redis.call('ZADD', P .. 'tombs', ended, new.id)
  end
  moment('expiries', new.id, LIVE[new.state], new.expires)
  moment('deadlines', new.id, UNREADY[new.state], new.deadline)
  moment('ends', new.id, new.state == 'ending', new.ending)
  redis.call('HSET', P .. 's:' .. new.id, 'version', new.version, 'state', new.state, 'owner', new.owner,
    'key', new.key, 'ended', ended, 'record', new.record, 'writer', new.writer, 'holder', new.holder)
  if new.news ~= '' then redis.call('PUBLISH', P .. 'feed', new.news) end
end

local function intact()
  return redis.call('EXISTS', P .. 'intact') == 1
end
