-- Store.admit. `total` is the installation's limit, `lease` has to be held by `lease_holder`; '' for none.
-- Returns {outcome, record or {resource, used, limit}}; the record is '' if it was admitted as requested.
-- args: ROW total:number most_sandboxes most_cpu_millicores most_memory_bytes most_gpu most_starting
-- args: lease lease_holder
if not intact() then return redis.error_reply('LOST') end
trim(a.now)
local old = known(a.key, a.now) or read(a.id)
-- This call's own record: the call is retried after its answer was lost.
if old and old.id == a.id then return {'admitted', old.record} end
if a.lease ~= '' then
  local held = redis.call('HMGET', P .. 'lease:' .. a.lease, 'holder', 'until')
  if held[1] ~= a.lease_holder or tonumber(held[2]) <= a.now then return {'fenced', ''} end
end
local taken = refused(a, old, a.total)
if taken then return taken end
put(a, nil)
return {'admitted', ''}
