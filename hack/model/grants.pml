/*
 * A model of the rules that let at most one process hold the office, and that make fencing tokens rise. Its author knew the Go code,
 * but the model shares none of it: the rules are those of docs/adr 1, 2, 7, 8, 9, 13, 14, 22 and 34. docs/simulation.md says what
 * was searched.
 *
 * Members 0, 1 and 2 are the first list; member 3 joins with the second. The elections themselves are absent: any candidate may
 * claim the office at any time. Whatever an election decides is one of these behaviours.
 *
 * Abstractions:
 *
 *  - Time is a number of ticks that all members count together, up to HORIZON. A tick is one term. A term clock is the time plus
 *    an offset, which is 0 or SKEW, less what it lost at a restart. The operator's clock has the offset 0.
 *  - Clocks of different rates are not modelled as such. PROMISE is the shortest time that a member's promise can last, and HOLD
 *    the longest time for which a holder can rely on it. The design makes HOLD <= PROMISE with a margin.
 *  - A claim uses the lowest or the highest term that is possible.
 *  - Request and answer are one step. Either may be lost. At most LATE messages at a time are delayed instead, by any time.
 *    RESIGNED and reports about ended processes may arrive at any time after the event, in any order, several times or never.
 *  - A member knows what others have adopted as soon as it is true. Messages can only bring that knowledge later.
 *  - A crash is a restart: a process that is down can do nothing that a restarted one, which does nothing, couldn't.
 *    A paused process is one that takes no step. A process checks its own lease in the same step in which it acts.
 *  - The second list is published at time 0. The operator acts as soon as it may: members may adopt a document later anyway.
 *  - The floor of a departure is what any clock can read when the operator sees that the pod is gone. The operator really uses
 *    the reading a lease later, when it publishes the departure. That floor is higher, so it allows fewer claims.
 *  - Members adopt the newest published document, or an older one that they haven't adopted yet, and never go back.
 *
 *  - With RECOVERY, a member that restarted asks the others one by one what they have granted. With two lists, it may or may not know
 *    that the second one has settled. Only its first recovery counts: later answers don't lower the bound again.
 *  - With ABANDON, members forget claims that were given up. That a process gave up its claim may be known at any time after it, or never.
 *    A member doesn't record whether its grant was renewed: only claims are given up, and only tenures are renewed.
 *  - With SHORT, each request is for the longer or the shorter lease, and the lease of a member may become shorter once. The lists don't
 *    name leases, and no lease becomes longer.
 *  - With REMEMBERED, a process also restarts at once with all that it had granted.
 *
 * Absent: liveness, elections, more members and longer histories than the bounds, a third list and thus the floor of a list other than
 * that of a departure, a reading that is ahead of the clock or follows a clock that is set (ADR 13), the leases of lists (ADR 22), the
 * encoding of messages, disks, certificates, and Available, which has no grants.
 */

#ifndef N
#define N 4		/* members, with the replacement */
#endif
#ifndef LISTS
#define LISTS 2		/* 1: the list doesn't change */
#endif
#ifndef HORIZON
#define HORIZON 2	/* ticks */
#endif
#ifndef SKEW
#define SKEW 1		/* how far two term clocks may differ */
#endif
#ifndef AHEAD
#define AHEAD 0		/* bit m: the clock of member m is ahead; 255: any clocks may be */
#endif
#define ANY_CLOCKS (AHEAD == 255)
#ifndef PROMISE
#define PROMISE 2	/* also the wait after a restart */
#endif
#ifndef HOLD
#define HOLD PROMISE
#endif
#ifndef RESTARTS
#define RESTARTS 0	/* restarts in all */
#endif
#ifndef RESTARTING
#define RESTARTING 15	/* bit m: member m may restart without memory */
#endif
#ifndef BACK
#define BACK 0		/* how far a clock may go back over a restart */
#endif
#ifndef RECOVERY
#define RECOVERY 0	/* 1: a member recovers what it forgot from the others */
#endif
#ifndef REMEMBERED
#define REMEMBERED 0	/* further restarts in all, after which the member remembers what it granted */
#endif
#ifndef ABANDON
#define ABANDON 0	/* 1: members forget what they granted a claim that was given up */
#endif
#ifndef SHORT
#define SHORT 0		/* the shorter of two leases; 0: all leases are equal. PROMISE is the longer one */
#endif
#ifndef SHORTER
#define SHORTER 0	/* bit m: the lease of member m is the shorter one, or becomes it at any time */
#endif
#ifndef CLAIMS
#define CLAIMS 2	/* claims in all */
#endif
#ifndef LOST
#define LOST 1		/* answers that are lost in all; requests may always be lost */
#endif
#ifndef RESIGN
#define RESIGN 1	/* 0: nobody gives up a claim or the office before it has to */
#endif
#ifndef LATE
#define LATE 0		/* messages that may be late at a time: 0 or 1 */
#endif
#ifndef CANDIDATES
#define CANDIDATES 15	/* bit m: member m is eligible */
#endif
#ifndef ENDING
#define ENDING 0	/* bit m: the pod of m may end for good */
#endif
#ifndef LIST1
#define LIST1 7
#endif
#ifndef LIST2
#define LIST2 9
#endif

#ifdef STRICT
#define OUTLIVES 1
#define RELEASE_WHEN_ENDED 0
#define PROOF_NEEDED 1
#else
#define OUTLIVES 0
#define RELEASE_WHEN_ENDED 1
#define PROOF_NEEDED 0
#endif

/* Each rule can be removed with -D, so that the search must find what the rule prevents. */
#ifdef NO_DEPARTURE_WAIT
#define DEPARTURE_WAIT 0
#else
#define DEPARTURE_WAIT PROMISE
#endif
#ifdef NO_FLOOR_SKEW			/* a departure's floor trusts that no clock is ahead of the operator's */
#define DEPARTURE_FLOOR (READING(now, BACK) - DEPARTURE_WAIT)
#else
#define DEPARTURE_FLOOR (READING(now, BACK + SKEW) - DEPARTURE_WAIT)
#endif
#ifdef NO_QUIET_AFTER_RESTART
#define QUIET 0
#else
#define QUIET PROMISE
#endif
#ifdef NO_CEILING
#define CEILING(m) (READING(HORIZON, BACK + SKEW))
#else
#define CEILING(m) READING(now, clock[m])
#endif
#ifdef NO_REBOOT_FLOOR
#define REBOOT_FLOOR(m) 0
#elif defined(FLOOR_AT_BOOT)		/* the floor trusts that no clock goes back over a restart */
#define REBOOT_FLOOR(m) READING(now, clock[m])
#else
#define REBOOT_FLOOR(m) READING(now, clock[m] + PROMISE)
#endif
#ifdef RECOVER_TOO_EARLY
#define RECOVERY_STARTS(m) true
#else
#define RECOVERY_STARTS(m) (quiet[m] == 0)
#endif
#ifdef RECOVER_FROM_TOO_FEW
#define ENOUGH(answers) (answers >= SIZE(1) - SIZE(1) / 2 - 1)
#else
#define ENOUGH(answers) (answers >= SIZE(1) - SIZE(1) / 2)	/* n - majority + 1 */
#endif
#ifdef GRANT_TWICE
#define FREE(k, m, l) true
#else
#define FREE(k, m, l) (expiry[k] == 0 || SAME(k, m, l))
#endif
#ifdef GRANT_ANY_TERM
#define RISES(k, m, l, t) true
#else
#define RISES(k, m, l, t) (t > highest[k] || SAME(k, m, l) && t == granted_term[k])
#endif
#ifdef GRANT_LATE_REQUEST
#define LATEST(k, m, l, t) true
#else
#define LATEST(k, m, l, t) !(SAME(k, m, l) && t < granted_term[k])
#endif
#ifdef GRANT_OLD_LIST
#define CURRENT(k, r) true
#else
#define CURRENT(k, r) (r >= VERSION(k))
#endif
#ifdef NEW_LIST_SUFFICES
#define BOTH_LISTS false
#else
#define BOTH_LISTS true
#endif
#ifdef REPORT_TOO_EARLY
#define EXPIRED(k) true
#else
#define EXPIRED(k) (older_expiry[k] == 0)
#endif
#ifdef REPORT_WITHOUT_TERM
#define ABOVE_OLDER(t, k) true
#else
#define ABOVE_OLDER(t, k) (t > older_highest[k])
#endif
#ifdef RELEASE_ANY_TERM
#define RESIGNED_TERM(k) (resigned[granted_to[k]] > 0)
#else
#define RESIGNED_TERM(k) (granted_term[k] <= resigned[granted_to[k]])
#endif
#ifdef RELEASE_ANY_LIFE
#define LIFE_ENDED(k) (life[granted_to[k]] > 0)
#else
#define LIFE_ENDED(k) (life[granted_to[k]] != granted_life[k])
#endif
#ifdef RELEASE_IN_STRICT
#undef RELEASE_WHEN_ENDED
#define RELEASE_WHEN_ENDED 1
#endif
#ifdef DEPART_WITHOUT_PROOF
#undef PROOF_NEEDED
#define PROOF_NEEDED 0
#endif
#ifdef LEASE_FROM_ANSWER
#define SINCE_SENT HOLD
#define USELESS false
#else
#define SINCE_SENT late_left
#define USELESS (late_kind == ANSWER && late_left == 0)
#endif

/* Which claims a member forgets: the term that it granted last, if the same life gave up the claim. */
#ifdef ABANDON_ANY_TERM
#define ABANDONED(k) (granted_life[k] == life[granted_to[k]] && given_up[granted_to[k]] > 0)
#elif defined(ABANDON_ANY_LIFE)
#define ABANDONED(k) BIT(given_up[granted_to[k]] | given_up_before[granted_to[k]], granted_term[k])
#elif defined(ABANDON_ANY_PROCESS)
#define ABANDONED(k) BIT(given_up[0] | given_up[1] | given_up[2] FOURTH(| given_up[3]), granted_term[k])
#else
#define ABANDONED(k) (granted_life[k] == life[granted_to[k]] && BIT(given_up[granted_to[k]], granted_term[k]))
#endif
#ifdef ABANDON_TENURE
#define GIVES_UP(m) true
#else
#define GIVES_UP(m) (role[m] == CANDIDATE)
#endif
#ifdef ABANDON_EARLIER			/* the member also forgets what it granted before that claim */
#define BEFORE(k) 0
#else
#define BEFORE(k) granted_before[k]
#endif
#if SHORT
#define LEASE(k) (shorter[k] -> SHORT : PROMISE)
#define WAIT(m) MAX(LEASE(m), (longer_left[m] > 0 -> PROMISE : 0))
#ifdef WAIT_FOR_PRESENT_LEASE
#undef WAIT
#define WAIT(m) LEASE(m)
#endif
#ifdef GRANT_REQUESTED_LEASE
#define COMMON_LEASE(k) requested
#else
#define COMMON_LEASE(k) (requested > LEASE(k) -> LEASE(k) : requested)
#endif
#ifdef COUNT_REQUESTED_LEASE
#define COUNTED_LEASE requested
#else
#define COUNTED_LEASE lent
#endif
#ifdef SHORTEN_PROMISE
#define PROMISED(k) lent
#else
#define PROMISED(k) MAX(expiry[k], lent)
#endif
#else
#define WAIT(m) QUIET
#define COUNTED_LEASE HOLD
#define PROMISED(k) PROMISE
#endif
#ifdef RECOVER_FROM_OTHER_LISTS
#define SAME_LIST(m, k) true
#else
#define SAME_LIST(m, k) (VERSION(k) == VERSION(m))
#endif
#ifdef RECOVER_FROM_NEW_LIST
#define OLD_LIST_COUNTS(settled) false
#else
#define OLD_LIST_COUNTS(settled) (!settled)
#endif
#ifdef RECOVER_WITHOUT_SETTLED_FLOOR
#define COVERS_OLD_LIST(m, t, settled) true
#else
#define COVERS_OLD_LIST(m, t, settled) (!settled || SETTLED(document[m], (t) + 1))
#endif
#ifdef RECOVER_WITHOUT_LIST_FLOOR
#define LIST_FLOOR(m) 0
#else
#define LIST_FLOOR(m) departure_floor[document[m]]
#endif
#ifdef FORGET_WAIT
#define REMEMBERED_WAIT(m) 0
#else
#define REMEMBERED_WAIT(m) quiet[m]
#endif
#ifdef RELEASE_OWN_IN_STRICT
#define RELEASE_OWN true
#else
#define RELEASE_OWN (!OUTLIVES)
#endif

#define NONE N
#define UP 1
#define ENDED 2
#define FOLLOWER 0
#define CANDIDATE 1
#define HOLDER 2
#define REQUEST 1
#define ANSWER 2
#define DOCUMENTS 5		/* the first list, the second, and the second again for each departed member */

#define BASE 2		/* the operator's term clock at time 0 */
#define READING(time, offset) (BASE + (time) + (offset))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define DOWN(x) x = (x > 0 -> x - 1 : 0)
#define BIT(mask, k) (((mask) >> (k)) & 1)
#define LIST(v) ((v) == 1 -> LIST1 : LIST2)
#define IN(v, k) BIT(LIST(v), k)
#define SIZE(v) (IN(v, 0) + IN(v, 1) + IN(v, 2) + IN(v, 3))
#define MAJORITY(v, votes) (2 * (votes) > SIZE(v))
#if N > 3
#define FOURTH(x) x
#else
#define FOURTH(x)
#endif

byte now;
/* The operator: published documents. */
byte documents = LISTS, departed[DOCUMENTS], departure_floor[DOCUMENTS];
byte missing[N];			/* 1 + the ticks until the operator counts the member as departed; 0: not missing */
bit gone[N];				/* the API server has no such pod */
/* Processes. */
byte process[N], clock[N], life[N], document[N];
byte restarts, claims, lost;
/* Members' promises. */
byte quiet[N], granted_to[N], granted_life[N], granted_term[N], expiry[N], highest[N];
byte older_expiry[N], older_highest[N];	/* what was granted under the first list */
/* The recovery after a restart: who has answered, the highest answer, and what this incarnation has granted itself. */
bit forgot[N];
byte answered[N], bound[N], granted_since[N];
#if ABANDON
/* The highest term that earlier incarnations may have granted, that this one has granted, and that it had granted before its latest
   grant: "highest" is the maximum of the first two. Bit t of given_up: the process has given up its claim of term t. */
byte forgotten[N], granted_here[N], granted_before[N];
short given_up[N];
#ifdef ABANDON_ANY_LIFE
short given_up_before[N];
#endif
#endif
#if SHORT
bit shorter[N];
byte longer_left[N];			/* for how long a longer lease than the present one remains stored */
#endif
#if REMEMBERED
byte remembered;
#endif
#ifdef REACH_ABANDONED
byte ever_granted[N];
#endif
#ifdef OUTDATED_MEMORY			/* the state before the latest grant */
byte old_to[N], old_life[N], old_term[N], old_expiry[N], old_highest[N];
#endif
/* Claims and tenures. */
byte role[N], term[N], resigned[N], tenure[N], grants[N * N];
byte outlived[N];			/* Strict: the tenure of an application whose agent has crashed */
/* The late message. */
byte late_kind, late_from, late_to, late_life, late_term, late_version, late_left;
bit late_held;
/* What a resource that checks tokens has seen. */
byte newest;
hidden byte two_holders, token_fell;
hidden byte i;

#define VERSION(k) (document[k] > 0 -> 2 : 1)
#define SAME(k, m, l) (granted_to[k] == m && granted_life[k] == l)
#define MAY_GRANT(k, m, l, t, held, r) (process[k] == UP && quiet[k] == 0 && CURRENT(k, r) && t <= CEILING(k) \
	&& FREE(k, m, l) && LATEST(k, m, l, t) && (held || RISES(k, m, l, t)))

#if ABANDON
#define REMEMBER_GRANT(by, to, its_life, in_term) \
	if \
	:: SAME(by, to, its_life) && granted_term[by] == in_term \
	:: else -> granted_before[by] = granted_here[by] \
	fi; \
	granted_here[by] = MAX(granted_here[by], in_term);
#elif defined(OUTDATED_MEMORY)
#define REMEMBER_GRANT(by, to, its_life, in_term) \
	old_to[by] = granted_to[by]; old_life[by] = granted_life[by]; old_term[by] = granted_term[by]; \
	old_expiry[by] = expiry[by]; old_highest[by] = highest[by];
#else
#define REMEMBER_GRANT(by, to, its_life, in_term)
#endif

inline grant(by, to, its_life, in_term, under) {
#ifdef REACH_RESTARTED
	assert(life[by] == 0 || role[to] == HOLDER);
#endif
#ifdef REACH_ABANDONED
	assert(in_term > ever_granted[by] || SAME(by, to, its_life) || role[to] == HOLDER);
	ever_granted[by] = MAX(ever_granted[by], in_term);
#endif
	REMEMBER_GRANT(by, to, its_life, in_term)
	granted_to[by] = to; granted_life[by] = its_life; granted_term[by] = in_term; expiry[by] = PROMISED(by);
	highest[by] = MAX(highest[by], in_term);
#ifdef REACH_RECOVERED
	assert(life[by] == 0 || forgot[by] || in_term > REBOOT_FLOOR(by) || role[to] == HOLDER);
#endif
#ifdef REACH_RECOVERED_BY_NEW_LIST
	assert(life[by] == 0 || forgot[by] || VERSION(by) == 1 || role[to] == HOLDER);
#endif
#ifdef REACH_SHORTER
	assert(!shorter[by] || expiry[by] <= SHORT);
#endif
	granted_since[by] = (forgot[by] && !ABANDON -> MAX(granted_since[by], in_term) : 0);
	if
	:: under < LISTS -> older_expiry[by] = PROMISED(by); older_highest[by] = MAX(older_highest[by], in_term)
	:: else
	fi
}

inline release(by) {
	expiry[by] = 0; older_expiry[by] = 0
}

/* How many members of list v have granted m for at least c more ticks. */
#define VOTE(m, v, k, c) (IN(v, k) && grants[(m) * N + (k)] >= c)
#define VOTES(m, v, c) (VOTE(m, v, 0, c) + VOTE(m, v, 1, c) + VOTE(m, v, 2, c) FOURTH(+ VOTE(m, v, 3, c)))

/* Whether k counts as having adopted the second list: it has, or document d says that it departed. A new tenure needs a term t
   above all that it granted before. */
#define ADOPTED(k, d, t) (IN(1, k) && (VERSION(k) == 2 && EXPIRED(k) && ABOVE_OLDER(t, k) || BIT(departed[d], k) && t > departure_floor[d]))
#define ADOPTIONS(d, t) (ADOPTED(0, d, t) + ADOPTED(1, d, t) + ADOPTED(2, d, t) FOURTH(+ ADOPTED(3, d, t)))
#define SETTLED(d, t) MAJORITY(1, ADOPTIONS(d, t))
#define ANY_TERM 255

#define SUPPORTED(m, c, t) (MAJORITY(VERSION(m), VOTES(m, VERSION(m), c)) && (VERSION(m) == 1 || !BOTH_LISTS \
	|| SETTLED(document[m], t) || MAJORITY(1, VOTES(m, 1, c))))

#define HOLDS(m) (tenure[m] > 0 || outlived[m] > 0)
#define OTHER_HOLDS(m) (m != 0 && HOLDS(0) || m != 1 && HOLDS(1) || m != 2 && HOLDS(2) FOURTH(|| m != 3 && HOLDS(3)))

/* What m does when its grants or what it knows about adoptions have changed. */
#define MAY_ACQUIRE(m) (role[m] == CANDIDATE && SUPPORTED(m, 1, term[m]))
#define MAY_EXTEND(m) (role[m] == HOLDER && tenure[m] < HOLD && SUPPORTED(m, tenure[m] + 1, ANY_TERM))

inline count(who) {
	if
	:: MAY_ACQUIRE(who) ->
		role[who] = HOLDER;
		token_fell = (term[who] <= newest);
#ifdef REACH_REMEMBERED
		assert(life[who] == 0 || newest == 0);
#endif
#ifdef REACH_DEPARTED
		assert(departed[document[who]] == 0);
#endif
		newest = term[who]
	:: else
	fi;
	if
	:: MAY_EXTEND(who) ->
		do
		:: MAY_EXTEND(who) -> tenure[who]++
		:: else -> break
		od;
		two_holders = OTHER_HOLDS(who);
		assert(!two_holders);
		token_fell = (token_fell || term[who] < newest);
		assert(!token_fell)
	:: else
	fi
}

inline clear_grants(whose) {
	for (i : 0 .. N - 1) { grants[(whose) * N + i] = 0 }
}

#if ABANDON
#define GIVE_UP(m) \
	if \
	:: GIVES_UP(m) -> given_up[m] = given_up[m] | (1 << term[m]) \
	:: else \
	fi;
/* Whether the member may still forget what it granted last. */
#define FORGETTABLE(k) (granted_here[k] != granted_before[k] && ABANDONED(k))
#define KEEP_HIGHEST(k) granted_before[k] = granted_here[k];
#define FORGET_CLAIMS(m) forgotten[m] = highest[m]; granted_here[m] = 0; granted_before[m] = 0; FORGET_GIVEN_UP(m)
#ifdef ABANDON_ANY_LIFE
#define FORGET_GIVEN_UP(m) given_up_before[m] = given_up_before[m] | given_up[m]; given_up[m] = 0;
#else
#define FORGET_GIVEN_UP(m) given_up[m] = 0;
#endif
#else
#define GIVE_UP(m)
#define FORGETTABLE(k) false
#define KEEP_HIGHEST(k)
#define FORGET_CLAIMS(m)
#define FORGET_GIVEN_UP(m)
#endif

/* The end of a claim or tenure, which is announced with RESIGNED. */
inline stop(who) {
	GIVE_UP(who)
	resigned[who] = term[who]; role[who] = FOLLOWER; term[who] = 0; tenure[who] = 0;
	clear_grants(who)
}

/* What every process forgets that ends. */
inline end_claim(who) {
	role[who] = FOLLOWER; term[who] = 0; tenure[who] = 0; resigned[who] = 0;
	clear_grants(who)
}

inline forget(who) {
	end_claim(who);
	granted_to[who] = NONE; granted_life[who] = 0; granted_term[who] = 0; expiry[who] = 0
}

inline drop() {
	late_kind = 0; late_from = 0; late_to = 0; late_life = 0; late_term = 0; late_version = 0; late_left = 0; late_held = 0
}

/* Followers claim the office in any term that they have not used: claims that nobody grants are no different from none. */
#define LOWEST(m) MAX(highest[m], resigned[m])
#define MAY_CLAIM(m) (process[m] == UP && role[m] == FOLLOWER && BIT(CANDIDATES, m) && IN(VERSION(m), m) && claims < CLAIMS)
#define MAY_CLAIM_IN(m, k, t) MAY_GRANT(k, m, life[m], t, false, VERSION(m))
#define CLAIM(k) \
	:: atomic { MAY_CLAIM(m) && ASKS(m, k) && CEILING(m) > LOWEST(m) \
		&& (MAY_CLAIM_IN(m, k, CEILING(m)) || MAY_CLAIM_IN(m, k, LOWEST(m) + 1)) -> \
		if \
		:: MAY_CLAIM_IN(m, k, CEILING(m)) -> t = CEILING(m) \
		:: LOWEST(m) + 1 < CEILING(m) && MAY_CLAIM_IN(m, k, LOWEST(m) + 1) -> t = LOWEST(m) + 1 \
		fi; \
		claims++; role[m] = CANDIDATE; term[m] = t; t = 0; \
		REQUEST_FROM(k) }
#if SHORT
#define USELESS_REQUEST(m, k) false
#else
#define USELESS_REQUEST(m, k) (expiry[k] == PROMISE && grants[(m) * N + (k)] == HOLD)
#endif
/* m requests a grant from k, which arrives, is lost, or is late. */
#define ASKS(m, k) (IN(VERSION(m), k) || IN(1, k))
#define RENEW(k) \
	:: atomic { role[m] != FOLLOWER && ASKS(m, k) && !USELESS_REQUEST(m, k) \
		&& MAY_GRANT(k, m, life[m], term[m], role[m] == HOLDER, VERSION(m)) -> \
		REQUEST_FROM(k) }
#if SHORT
#define CHOOSE_LEASE(m, k) \
		if \
		:: requested = LEASE(m) \
		:: requested = SHORT \
		fi; \
		lent = COMMON_LEASE(k);
#define FORGET_LEASE ; requested = 0; lent = 0
#define COUNTED(m, k) MAX(grants[(m) * N + (k)], COUNTED_LEASE)
#else
#define CHOOSE_LEASE(m, k)
#define FORGET_LEASE
#define COUNTED(m, k) HOLD
#endif
#define REQUEST_FROM(k) \
		CHOOSE_LEASE(m, k) \
		d_step { grant(k, m, life[m], term[m], VERSION(m)); skip }; \
		if \
		:: d_step { grants[(m) * N + (k)] = COUNTED(m, k); count(m) FORGET_LEASE; skip } \
		:: k != m && lost < LOST -> lost++ FORGET_LEASE \
		:: LATE > 0 && k != m && late_kind == 0 -> \
			late_kind = ANSWER; late_from = k; late_to = m; late_life = life[m]; late_term = term[m]; late_left = HOLD \
		fi

#define GRANTS(m, k) (expiry[k] > 0 && SAME(k, m, life[m]))
#define IGNORED(m) !(GRANTS(m, 0) || GRANTS(m, 1) || GRANTS(m, 2) FOURTH(|| GRANTS(m, 3)))

/* The operator counts a member as departed DEPARTURE_WAIT after its pod is gone. */
#define OPERATE(k) \
	if \
	:: LISTS > 1 && IN(1, k) && !BIT(departed[documents - 1], k) && missing[k] == 0 && gone[k] \
		&& (!PROOF_NEEDED || process[k] == ENDED) -> missing[k] = 1 + DEPARTURE_WAIT \
	:: else \
	fi; \
	if \
	:: missing[k] == 1 -> missing[k] = 0; departed[documents] = departed[documents - 1] | (1 << k); \
		departure_floor[documents] = DEPARTURE_FLOOR; documents++ \
	:: else \
	fi;

#if RECOVERY && LISTS > 1
/* Answers under another list don't count. */
#define FORGET_ANSWERS(m) \
		if \
		:: VERSION(m) == 1 -> answered[m] = 0; bound[m] = 0 \
		:: else \
		fi;
#else
#define FORGET_ANSWERS(m)
#endif

/* Adopt a newer document. */
#define ADOPT(d) \
	:: d_step { d < documents && process[m] == UP && document[m] < d -> \
		FORGET_ANSWERS(m) \
		if \
		:: VERSION(m) == 1 && role[m] == CANDIDATE -> stop(m) \
		:: VERSION(m) == 1 && role[m] == HOLDER -> clear_grants(m) \
		:: else \
		fi; \
		document[m] = d }

/* m asks k what it has granted. */
#define ASK(k) \
	:: d_step { forgot[m] && k != m && process[k] == UP && RECOVERY_STARTS(m) && SAME_LIST(m, k) && !BIT(answered[m], k) -> \
		answered[m] = answered[m] | (1 << k); bound[m] = MAX(bound[m], highest[k]) }
/* It keeps its reading of the clock at boot while the answers are above its clock. */
#define MAY_RECOVER(m) (forgot[m] && ENOUGH(BIT(answered[m], 0) + BIT(answered[m], 1) + BIT(answered[m], 2)) && bound[m] <= CEILING(m))

#if RECOVERY && LISTS > 1
/* With two lists, the answers of others count for each list in force: that of the member and, unless it is known to have settled, the
   one before. If it has settled, what members reported when they adopted it takes the place of these answers. Departed members count
   with the floor of the list. The bound isn't below that in any case. */
#define ANSWERED(m, v, k, known) (k != m && IN(v, k) && BIT(known, k))
#define ANSWERS(m, v, known) (ANSWERED(m, v, 0, known) + ANSWERED(m, v, 1, known) + ANSWERED(m, v, 2, known) \
	FOURTH(+ ANSWERED(m, v, 3, known)))
#define ENOUGH_OF(m, v, known) (!IN(v, m) || ANSWERS(m, v, known) >= SIZE(v) - SIZE(v) / 2)
#define RECOVER(settled) \
	:: d_step { forgot[m] && process[m] == UP && (!settled || VERSION(m) == 2 && SETTLED(document[m], ANY_TERM)) \
		&& ENOUGH_OF(m, VERSION(m), answered[m]) && (!OLD_LIST_COUNTS(settled) || ENOUGH_OF(m, 1, answered[m] | departed[document[m]])) -> \
		t = MAX(bound[m], LIST_FLOOR(m)); \
		do \
		:: COVERS_OLD_LIST(m, t, settled) -> break \
		:: else -> t++ \
		od; \
		if \
		:: t <= CEILING(m) -> recover(m, t) \
		:: else \
		fi; \
		t = 0 }
#endif

/* The next report about the adoption may have a lower term than an earlier one, and the lowest report counts. */
inline lower_report(who) {
#if LISTS > 1
	older_highest[who] = (older_highest[who] < highest[who] -> older_highest[who] : highest[who]);
#endif
	skip
}

inline recover(who, to) {
#if ABANDON
	forgotten[who] = to; highest[who] = MAX(to, granted_here[who]);
#else
	highest[who] = MAX(to, granted_since[who]);
#endif
	lower_report(who);
	forgot[who] = 0; answered[who] = 0; bound[who] = 0; granted_since[who] = 0
}

proctype member(byte m) {
	byte t;
#if SHORT
	byte requested, lent;		/* the lease of a request, and of the answer */
#endif
	do
	CLAIM(0)
	RENEW(0)
	CLAIM(1)
	RENEW(1)
	CLAIM(2)
	RENEW(2)
	FOURTH(CLAIM(3))
	FOURTH(RENEW(3))
	:: d_step { MAY_ACQUIRE(m) || MAY_EXTEND(m) -> count(m); skip }
	:: d_step { RESIGN && role[m] != FOLLOWER || role[m] == CANDIDATE && IGNORED(m) -> stop(m); skip }
	/* As a member: somebody has resigned, or its process was seen to have ended. */
	:: d_step { RESIGN && expiry[m] > 0 && life[granted_to[m]] == granted_life[m] && RESIGNED_TERM(m) -> release(m); skip }
	:: d_step { RELEASE_WHEN_ENDED && expiry[m] > 0 && (process[granted_to[m]] == ENDED || LIFE_ENDED(m)) -> release(m); skip }
#if ABANDON
	/* The process gave up its claim: the term was never used. */
	:: d_step { granted_to[m] != NONE && FORGETTABLE(m) ->
		granted_here[m] = BEFORE(m); granted_before[m] = BEFORE(m); highest[m] = MAX(forgotten[m], granted_here[m]);
		lower_report(m);
		if
		:: granted_life[m] == life[granted_to[m]] && BIT(given_up[granted_to[m]], granted_term[m]) -> release(m)
		:: else
		fi }
#endif
#if SHORT
	:: d_step { BIT(SHORTER, m) && !shorter[m] && process[m] == UP -> shorter[m] = 1; longer_left[m] = PROMISE }
#endif
	ADOPT(1) ADOPT(2) ADOPT(3) ADOPT(4)
	ASK(0)
	ASK(1)
	ASK(2)
#if RECOVERY && LISTS > 1
	FOURTH(ASK(3))
	RECOVER(false)
	RECOVER(true)
#else
	:: d_step { MAY_RECOVER(m) -> recover(m, bound[m]) }
#endif
	/* A crash and a restart without memory, except for the adopted list. */
	:: atomic { process[m] == UP && restarts < RESTARTS && BIT(RESTARTING, m) ->
		restarts++;
		do
		:: t < BACK && t < clock[m] -> t++
		:: break
		od;
		if
		:: OUTLIVES -> outlived[m] = MAX(outlived[m], tenure[m])
		:: else
		fi;
		forget(m); life[m]++;
		clock[m] = clock[m] - t; t = 0;
		quiet[m] = WAIT(m); highest[m] = REBOOT_FLOOR(m);
		FORGET_CLAIMS(m)
		forgot[m] = RECOVERY; answered[m] = 0; bound[m] = 0; granted_since[m] = 0;
		if
		:: VERSION(m) < LISTS -> older_expiry[m] = WAIT(m); older_highest[m] = REBOOT_FLOOR(m)
		:: else
		fi
		}
#if REMEMBERED
	/* A crash and a restart with memory. The new incarnation knows that the earlier one has ended. */
	:: d_step { process[m] == UP && remembered < REMEMBERED ->
		remembered++;
		if
		:: OUTLIVES -> outlived[m] = MAX(outlived[m], tenure[m])
		:: else
		fi;
		end_claim(m); life[m]++;
		quiet[m] = REMEMBERED_WAIT(m);
#ifdef OUTDATED_MEMORY
		granted_to[m] = old_to[m]; granted_life[m] = old_life[m]; granted_term[m] = old_term[m];
		expiry[m] = old_expiry[m]; highest[m] = old_highest[m];
#endif
		FORGET_GIVEN_UP(m)
		answered[m] = 0; bound[m] = 0;
		if
		:: RELEASE_OWN && granted_to[m] == m && expiry[m] > 0 -> release(m)
		:: else
		fi }
#endif
	/* The pod is force-deleted and continues to run, or ends for good. */
#ifdef FORCED
	:: d_step { BIT(ENDING, m) && !gone[m] -> gone[m] = 1; OPERATE(m) skip }
#else
	:: d_step { BIT(ENDING, m) && process[m] == UP ->
		process[m] = ENDED; gone[m] = 1; outlived[m] = 0; quiet[m] = 0; highest[m] = 0; forget(m);
		OPERATE(m) skip }
#endif
	/* Late messages. */
	:: d_step { LATE > 0 && late_kind == 0 && role[m] != FOLLOWER -> late_kind = REQUEST; late_from = m; late_life = life[m];
		late_term = term[m]; late_version = VERSION(m); late_held = (role[m] == HOLDER); late_left = HOLD }
	:: atomic { late_kind == REQUEST && late_from != m && MAY_GRANT(m, late_from, late_life, late_term, late_held, late_version) ->
		d_step { grant(m, late_from, late_life, late_term, late_version); skip };
		late_kind = ANSWER; late_to = late_from; late_from = m; late_version = 0; late_held = 0 }
	:: d_step { late_kind == ANSWER && late_to == m && role[m] != FOLLOWER && late_life == life[m] && late_term == term[m] ->
		grants[(m) * N + late_from] = MAX(grants[(m) * N + late_from], SINCE_SENT); drop(); count(m); skip }
	od
}

/* A holder loses the office when its grants have expired. */
#ifdef RENEW_LAPSED
#define LAPSES(m) false
#else
#define LAPSES(m) (role[m] == HOLDER && tenure[m] == 0)
#endif
#define LAPSE(m) if :: LAPSES(m) -> stop(m) :: else fi;
/* Forget what makes no difference: a resignation that releases no grant and forbids no term. */
#if defined(RELEASE_ANY_TERM) || ABANDON	/* what a member has granted itself can fall */
#define FORGET_RESIGNED(m)
#else
#define FORGET_RESIGNED(m) if :: late_kind != REQUEST && resigned[m] <= highest[m] && IGNORED(m) -> resigned[m] = 0 :: else fi;
#endif
/* An expired grant counts only for a claim that still lasts: the same term may be granted to it again. */
#define CLAIMED(m, l, t) (role[m] == CANDIDATE && life[m] == l && term[m] == t)
#define EXPIRE(k) if :: expiry[k] == 0 && granted_to[k] != NONE && late_kind != REQUEST \
	&& !CLAIMED(granted_to[k], granted_life[k], granted_term[k]) && !FORGETTABLE(k) -> \
	KEEP_HIGHEST(k) granted_to[k] = NONE; granted_life[k] = 0; granted_term[k] = 0 :: else fi;

#if SHORT
#define COUNT_DOWN(k) DOWN(longer_left[k]);
#elif defined(OUTDATED_MEMORY)
#define COUNT_DOWN(k) DOWN(old_expiry[k]);
#else
#define COUNT_DOWN(k)
#endif

proctype network_and_time() {
	do
	:: d_step { late_kind != 0 -> drop() }
	:: d_step { now < HORIZON -> now++;
		for (i : 0 .. N * N - 1) { DOWN(grants[i]) }
		for (i : 0 .. N - 1) {
			DOWN(quiet[i]); DOWN(expiry[i]); DOWN(older_expiry[i]); DOWN(tenure[i]); DOWN(outlived[i]);
			COUNT_DOWN(i)
			missing[i] = (missing[i] > 1 -> missing[i] - 1 : missing[i])
		}
		OPERATE(0) OPERATE(1) OPERATE(2) FOURTH(OPERATE(3))
		EXPIRE(0) EXPIRE(1) EXPIRE(2) FOURTH(EXPIRE(3))
		LAPSE(0) LAPSE(1) LAPSE(2) FOURTH(LAPSE(3))
		FORGET_RESIGNED(0) FORGET_RESIGNED(1) FORGET_RESIGNED(2) FOURTH(FORGET_RESIGNED(3))
		DOWN(late_left);
		if
		:: USELESS -> drop()
		:: else
		fi;
		skip }
	od
}

#if ABANDON
#define SETUP_REST(m) forgotten[m] = highest[m];
#elif defined(OUTDATED_MEMORY)
#define SETUP_REST(m) old_to[m] = NONE; old_highest[m] = highest[m];
#elif SHORT
#define SETUP_REST(m) \
	if \
	:: BIT(SHORTER, m) -> shorter[m] = 1 \
	:: true \
	fi;
#else
#define SETUP_REST(m)
#endif
#define SETUP(m) granted_to[m] = NONE; process[m] = UP; document[m] = !IN(1, m); \
	if \
	:: !BIT(AHEAD, m) || ANY_CLOCKS -> clock[m] = BACK \
	:: SKEW > 0 && (BIT(AHEAD, m) || ANY_CLOCKS) -> clock[m] = BACK + SKEW \
	fi; \
	highest[m] = (IN(1, m) -> 0 : READING(0, clock[m]) - PROMISE); /* a new member has granted nothing: any floor would do */ \
	SETUP_REST(m)

init {
	atomic {
		SETUP(0) SETUP(1) SETUP(2) FOURTH(SETUP(3))
		run member(0); run member(1); run member(2);
		FOURTH(run member(3);)
		run network_and_time()
	}
}
