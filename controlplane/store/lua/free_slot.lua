-- Store.free_slot. Works on a lost store too, where no slot is taken.
-- args: now:number id
if redis.call('ZREM', P .. 'slots', a.id) == 1 then wake(a.now) end
return 1
