-- Store.free_slot. Works on a lost store too, where no slot is taken. Publishes the message only if a start was refused
-- a slot since the last one was freed.
-- args: id message
if redis.call('ZREM', P .. 'slots', a.id) == 1 and redis.call('DEL', P .. 'wanted') == 1 then
  redis.call('PUBLISH', P .. 'feed', a.message)
end
return 1
