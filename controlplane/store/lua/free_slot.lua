-- ARGV: id, news. Needs no intact store: a slot that is not there is free. Told only when somebody went without one.
if redis.call('ZREM', P .. 'slots', ARGV[1]) == 1 and redis.call('DEL', P .. 'wanted') == 1 then
  redis.call('PUBLISH', P .. 'feed', ARGV[2])
end
return 1
