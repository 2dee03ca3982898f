-- Store.free_slot. ARGV: id, message. Works on a lost store too, where no slot is taken. Publishes the message only if
-- a start was refused a slot since the last one was freed.
if redis.call('ZREM', P .. 'slots', ARGV[1]) == 1 and redis.call('DEL', P .. 'wanted') == 1 then
  redis.call('PUBLISH', P .. 'feed', ARGV[2])
end
return 1
