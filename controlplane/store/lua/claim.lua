-- Store.claim. The row is `rows.wish_row`. Returns as admit, or {'none', ''}.
-- args: ROW most_sandboxes most_cpu_millicores most_memory_bytes most_gpu most_starting
if not intact() then return redis.error_reply('LOST') end
trim(a.now)
-- This call's own claim: the call is retried after its answer was lost.
local mine = redis.call('GET', P .. 'claim:' .. a.id)
local old = mine and read(mine)
if old then return {'claimed', old.record} end
local taken = refused(a, known(a.key, a.now), 0)
if taken then return taken end
local waiting, id, warm = P .. 'warm:' .. a.template, nil, nil
repeat
  id = redis.call('ZRANGEBYSCORE', waiting, '-inf', a.now, 'LIMIT', 0, 1)[1]
  if not id then return {'none', ''} end
  warm = read(id)
  -- A replica of another version may have changed the record without updating this set.
  if not (warm and warm.state == 'warm') then redis.call('ZREM', waiting, id) end
until warm and warm.state == 'warm'
local version = string.format('%.0f', tonumber(warm.version) + 1)
local head, kept = '{"version":' .. version .. '}', '{' .. warm.own .. '}'
local new = {now = a.now, writer = a.writer, holder = a.holder, id = id, version = version, state = a.state,
  owner = a.owner, key = a.key, created = redis.call('ZSCORE', P .. 'in:warm', id), expires = a.expires,
  deadline = 0, ending = 0, cpu = warm.cpu, memory = warm.memory, gpu = warm.gpu, record = merged(head, kept, a.record),
  message = a.message, template = '', own = ''}
put(new, warm)
redis.call('SET', P .. 'claim:' .. a.id, id, 'PX', CLAIM_MS)
return {'claimed', new.record}
