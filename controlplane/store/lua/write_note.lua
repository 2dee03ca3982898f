-- Store.write_note. Returns 1 when the text is there.
-- args: now:number name before text ttl:number
if not intact() then return redis.error_reply('LOST') end
local note = P .. 'note:' .. a.name
local kept = redis.call('HMGET', note, 'text', 'until')
local there = kept[1] and tonumber(kept[2]) > a.now and kept[1] or ''
-- A call that is repeated since its answer was lost finds what it has written.
if there ~= a.before and (a.text == '' or there ~= a.text) then return 0 end
redis.call('DEL', note)
if a.text ~= '' then
  redis.call('HSET', note, 'text', a.text, 'until', a.now + a.ttl)
  -- Later than `until`, which goes by the callers' clocks.
  redis.call('PEXPIRE', note, a.ttl + 60000)
end
return 1
