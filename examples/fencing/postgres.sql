-- Rejects the writes of former coordinators. Call it first in each transaction in which a coordinator writes:
--
--   BEGIN;
--   SELECT conclave_fence('ledger', 29353636331530); -- the resource, and the coordinator's token
--   UPDATE ...;
--   COMMIT;
--
-- Until the end of the transaction, nobody else writes under this resource: a later coordinator waits for a transaction of the former
-- one, and after that the former one is rejected.
CREATE TABLE IF NOT EXISTS conclave_fences (
  resource text PRIMARY KEY,
  token bigint NOT NULL
);

CREATE OR REPLACE FUNCTION conclave_fence(fenced text, presented bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO conclave_fences AS fence (resource, token) VALUES (fenced, presented)
  ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'token % is too low: a later coordinator has written %', presented, fenced USING ERRCODE = 'CFENC';
  END IF;
END
$$;
