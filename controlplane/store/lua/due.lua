-- Store.due. `most` is how many ids each list has at most. Returns the four lists of `Due`.
-- args: now:number unconfirmed_before most
if not intact() then return redis.error_reply('LOST') end
local function up_to(set, at) return redis.call('ZRANGEBYSCORE', P .. set, '-inf', at, 'LIMIT', 0, a.most) end
local here, abandoned = {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'deadlines', '(' .. a.now, '+inf', 'LIMIT', 0, a.most)) do
  local holder = redis.call('HGET', P .. 's:' .. id, 'holder') or ''
  if here[holder] == nil then
    here[holder] = tonumber(redis.call('HGET', P .. 'lease:replica:' .. holder, 'until') or '0') > a.now
  end
  if not here[holder] then abandoned[#abandoned + 1] = id end
end
return {up_to('expiries', a.now), up_to('deadlines', a.now), up_to('ends', a.unconfirmed_before), abandoned}
