-- Store.claim. ARGV: a row of `rows.wish_row`, 0, the limits of the owner's quota. Returns as admit, or {'none', ''}.
if not intact() then return redis.error_reply('LOST') end
local wish = row()
trim(wish.now)
-- This call's own claim: the call is retried after its answer was lost.
local mine = redis.call('GET', P .. 'claim:' .. wish.id)
local old = mine and read(mine)
if old then return {'claimed', old.record} end
local taken = refused(wish, known(wish.key, wish.now), 0)
if taken then return taken end
local waiting, id, warm = P .. 'warm:' .. wish.template, nil, nil
repeat
  id = redis.call('ZRANGEBYSCORE', waiting, '-inf', wish.now, 'LIMIT', 0, 1)[1]
  if not id then return {'none', ''} end
  warm = read(id)
  -- A replica of another version may have changed the record without updating this set.
  if not (warm and warm.state == 'warm') then redis.call('ZREM', waiting, id) end
until warm and warm.state == 'warm'
local version = string.format('%.0f', tonumber(warm.version) + 1)
local before = '{"version":' .. version .. ',' .. warm.own .. ','
local new = {now = wish.now, writer = wish.writer, holder = wish.holder, id = id, version = version, state = 'running',
  owner = wish.owner, key = wish.key, created = redis.call('ZSCORE', P .. 'in:warm', id), expires = wish.expires,
  deadline = 0, ending = 0, cpu = warm.cpu, memory = warm.memory, gpu = warm.gpu, record = before .. wish.record .. '}',
  news = wish.own .. before .. wish.news .. '}}', template = '', own = ''}
put(new, warm)
redis.call('SET', P .. 'claim:' .. wish.id, id, 'PX', CLAIM_MS)
return {'claimed', new.record}
