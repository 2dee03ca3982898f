-- Store.admit. ARGV: a row, the installation's limit, those of the owner's quota, a lease and its required holder (''
-- for none). Returns {outcome, record or {resource, used, limit}}; the record is '' if it was admitted as requested.
if not intact() then return redis.error_reply('LOST') end
local new, limit = row(), tonumber(ARGV[23])
trim(new.now)
local old = known(new.key, new.now) or read(new.id)
-- This call's own record: the call is retried after its answer was lost.
if old and old.id == new.id then return {'admitted', old.record} end
if ARGV[29] ~= '' then
  local held = redis.call('HMGET', P .. 'lease:' .. ARGV[29], 'holder', 'until')
  if held[1] ~= ARGV[30] or tonumber(held[2]) <= new.now then return {'fenced', ''} end
end
local taken = refused(new, old, limit)
if taken then return taken end
put(new, nil)
return {'admitted', ''}
