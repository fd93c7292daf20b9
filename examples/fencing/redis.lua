-- Rejects the writes of former coordinators: runs a command if no higher token was presented for the same fence before.
--
--   redis-cli --eval redis.lua fence:ledger , 29353636331530 SET ledger 42
--   EVALSHA ... 2 {ledger}:fence {ledger} 29353636331530 SET {ledger} 42     in a Redis Cluster, with one hash tag
--
-- The first key is the fence; name those of the command, too. A replica that takes over may lack the last writes, fences among them.
local presented = tonumber(ARGV[1])
if not presented then
  return redis.error_reply('FENCE the first argument must be a token')
end
local highest = redis.call('GET', KEYS[1])
if highest and tonumber(highest) > presented then
  return redis.error_reply('FENCE token ' .. ARGV[1] .. ' is too low: a later coordinator has written ' .. KEYS[1])
end
redis.call('SET', KEYS[1], ARGV[1])
return redis.call(unpack(ARGV, 2))
