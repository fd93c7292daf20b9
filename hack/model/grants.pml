/*
 * A model of the rules that let at most one process hold the office, and that make fencing tokens rise. Its author knew the Go code,
 * but the model shares none of it: the rules are those of docs/adr 2, 7, 8, 9, 14, 22, 34, 56 and 57. docs/simulation.md says what
 * was searched.
 *
 * Members 0, 1 and 2 are the first list; member 3 joins with the second. The elections themselves are absent: any candidate may
 * claim the office at any time. Whatever an election decides is one of these behaviours.
 *
 * Abstractions:
 *
 *  - Time is a number of ticks that all members count together, up to HORIZON. Clocks of different rates are not modelled as such.
 *    PROMISE is the shortest time that a member's promise can last, and HOLD the longest time for which a holder can rely on it.
 *    The design makes HOLD <= PROMISE with a margin.
 *  - Each list has COUNTERS terms, and a reservation ends with a block of BLOCK terms. A claim uses the lowest term that some member
 *    may grant, or the first one above its block.
 *  - A reservation is extended in the step of the first grant that needs it. An extension that comes earlier forbids more after
 *    a reboot, and one that comes later delays the request.
 *  - Request and answer are one step. Either may be lost. At most LATE messages at a time are delayed instead, by any time.
 *    RESIGNED and reports about ended processes may arrive at any time after the event, in any order, several times or never.
 *  - A member knows what others have adopted as soon as it is true. Messages can only bring that knowledge later.
 *  - A crash is a restart: a process that is down can do nothing that a restarted one, which does nothing, couldn't.
 *    A paused process is one that takes no step. A process checks its own lease in the same step in which it acts.
 *  - The second list is published at time 0 or, with LOSSES, at any time. The operator acts as soon as it may: members may adopt
 *    a document later anyway.
 *  - Members adopt the newest published document, or an older one that they haven't adopted yet, and never go back.
 *
 *  - With LOSSES, the state directory of a member is lost, and its process or its pod is replaced: the next process has another identity,
 *    and begins with the first document. The second list names the identity that the member had when it was published.
 *  - With UNBOUND, the first list doesn't name the identity of a member until the operator binds it.
 *  - With ABANDON, members forget claims that were given up. That a process gave up its claim may be known at any time after it, or never.
 *    A member doesn't record whether its grant was renewed: only claims are given up, and only tenures are renewed.
 *  - With SHORT, each request is for the longer or the shorter lease, and the lease of a member may become shorter once. The lists don't
 *    name leases, and no lease becomes longer.
 *  - With AVAILABLE, each claim is a tenure. Tokens name the member, so only those of one member may not be equal.
 *  - With REMEMBERED, a process also restarts at once with all that it had granted.
 *
 * Absent: liveness, elections, more members and longer histories than the bounds, a third list, the leases of lists (ADR 22), the encoding of
 * messages and disks, certificates, and lists in files.
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
#ifndef COUNTERS
#define COUNTERS 6	/* terms of each list, at most 7 */
#endif
#ifndef BLOCK
#define BLOCK 2		/* terms by which a reservation is extended */
#endif
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
#ifndef LOSSES
#define LOSSES 0	/* state directories that are lost in all */
#endif
#ifndef LOSING
#define LOSING 15	/* bit m: member m may lose its state directory */
#endif
#ifndef UNBOUND
#define UNBOUND 0	/* bit m: the first list doesn't name the identity of member m yet */
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
#ifdef NO_QUIET_AFTER_RESTART
#define QUIET 0
#else
#define QUIET PROMISE
#endif
#ifdef GRANT_ABOVE_RESERVATION
#define NEEDED(k, t) reserved[k]
#else
#define NEEDED(k, t) MAX(reserved[k], BLOCK_END(t))
#endif
#ifdef FORGET_RESERVATION		/* a member that reboots doesn't know what it had reserved */
#define STORED(k) 0
#elif defined(OUTDATED_DISK)		/* the latest block is on no disk yet, or the disk goes back */
#define STORED(k) (reserved[k] > FIRST(VERSION_OF(reserved[k])) + BLOCK -> reserved[k] - BLOCK : reserved[k])
#elif defined(STORE_LIST_ALONE)		/* the first block of a list isn't stored together with it */
#define STORED(k) (reserved[k] <= FIRST(2) + BLOCK -> FIRST(2) : reserved[k])
#else
#define STORED(k) reserved[k]
#endif
#ifdef CLAIM_NEWER_LIST
#define LAST_CLAIM(m) LAST(2)
#else
#define LAST_CLAIM(m) LAST(VERSION(m))
#endif
#ifdef FORGETFUL_GRANTS
#define VOTES_HERE(k) true
#else
#define VOTES_HERE(k) (!FORGETFUL(k))
#endif
#ifdef FORGETFUL_ADOPTS
#define REPORTS(k) true
#else
#define REPORTS(k) (!FORGETFUL(k))
#endif
#ifdef REPLACED_COUNTS			/* for the majority of the previous list */
#define CONTINUES(k) true
#else
#define CONTINUES(k) (!IN(2, k) || entry1[k] == UNKNOWN || entry1[k] == entry2[k])
#endif
#ifdef BIND_AGAIN
#define BINDABLE(entry, k) (entry != identity[k])
#else
#define BINDABLE(entry, k) (entry == UNKNOWN)
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

#define UNKNOWN 255
/* Terms: those of list v are above FIRST(v), which is also at least that of the list before. */
#define FIRST(v) (8 * ((v) - 1))
#define LAST(v) (FIRST(v) + COUNTERS)
#define BLOCK_END(t) (((t) + BLOCK - 1) / BLOCK * BLOCK)
#define VERSION_OF(t) ((t) > FIRST(2) -> 2 : 1)
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
byte documents = (LOSSES + UNBOUND > 0 -> 1 : LISTS), departed[DOCUMENTS];
byte entry1[N], entry2[N];		/* the identities that the lists name */
byte missing[N];			/* 1 + the ticks until the operator counts the member as departed; 0: not missing */
bit gone[N];				/* the API server has no such pod */
/* Processes. */
byte process[N], life[N], identity[N], document[N];
byte restarts, losses, claims, lost;
/* Members' promises. */
byte quiet[N], granted_to[N], granted_life[N], granted_term[N], expiry[N], highest[N], reserved[N];
byte older_expiry[N];			/* of what was granted under the first list */
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
#ifdef AVAILABLE
short used[N];				/* bit t: the member has claimed term t */
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
/* The process has another state directory than the list that it has adopted names, or the one before if that doesn't have it any more. */
#define FORGETFUL(k) (identity[k] != (VERSION(k) == 2 && IN(2, k) -> entry2[k] : entry1[k]))
#define SAME(k, m, l) (granted_to[k] == m && granted_life[k] == l)
#define MAY_GRANT(k, m, l, t, held, r) (process[k] == UP && quiet[k] == 0 && VOTES_HERE(k) && CURRENT(k, r) \
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

inline grant(by, to, its_life, in_term, held, under) {
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
	if
	:: !(held) -> reserved[by] = NEEDED(by, in_term)
	:: else
	fi;
#ifdef REACH_REPLACED
	assert(identity[by] == 0 || role[to] == HOLDER);
#endif
#ifdef REACH_SHORTER
	assert(!shorter[by] || expiry[by] <= SHORT);
#endif
	if
	:: under < LISTS -> older_expiry[by] = PROMISED(by)
	:: else
	fi
}

inline release(by) {
	expiry[by] = 0; older_expiry[by] = 0
}

/* How many members of list v have granted m for at least c more ticks. */
#define VOTE(m, v, k, c) (IN(v, k) && grants[(m) * N + (k)] >= c)
#define VOTES(m, v, c) (VOTE(m, v, 0, c) + VOTE(m, v, 1, c) + VOTE(m, v, 2, c) FOURTH(+ VOTE(m, v, 3, c)))

/* The votes of the members of the first list under the second one: those of replaced members don't count. */
#define OLD_VOTE(m, k, c) (VOTE(m, 1, k, c) && CONTINUES(k))
#define OLD_VOTES(m, c) (OLD_VOTE(m, 0, c) + OLD_VOTE(m, 1, c) + OLD_VOTE(m, 2, c) FOURTH(+ OLD_VOTE(m, 3, c)))

/* Whether k counts as having adopted the second list: it has, or document d says that it departed. */
#define ADOPTED(k, d) (IN(1, k) && (VERSION(k) == 2 && EXPIRED(k) && REPORTS(k) && CONTINUES(k) || BIT(departed[d], k)))
#define ADOPTIONS(d) (ADOPTED(0, d) + ADOPTED(1, d) + ADOPTED(2, d) FOURTH(+ ADOPTED(3, d)))
#define SETTLED(d) MAJORITY(1, ADOPTIONS(d))

#define SUPPORTED(m, c) (MAJORITY(VERSION(m), VOTES(m, VERSION(m), c)) && (VERSION(m) == 1 || !BOTH_LISTS \
	|| SETTLED(document[m]) || MAJORITY(1, OLD_VOTES(m, c))))

#define HOLDS(m) (tenure[m] > 0 || outlived[m] > 0)
#define OTHER_HOLDS(m) (m != 0 && HOLDS(0) || m != 1 && HOLDS(1) || m != 2 && HOLDS(2) FOURTH(|| m != 3 && HOLDS(3)))

/* What m does when its grants or what it knows about adoptions have changed. */
#define MAY_ACQUIRE(m) (role[m] == CANDIDATE && SUPPORTED(m, 1))
#define MAY_EXTEND(m) (role[m] == HOLDER && tenure[m] < HOLD && SUPPORTED(m, tenure[m] + 1))

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

/* Followers claim the office in a term of their list that they have not used: claims that nobody grants are no different from none. */
#define LOWEST(m) MAX(FIRST(VERSION(m)), MAX(highest[m], resigned[m]))
#define MAY_CLAIM(m) (process[m] == UP && role[m] == FOLLOWER && BIT(CANDIDATES, m) && IN(VERSION(m), m) && VOTES_HERE(m) && claims < CLAIMS)
#define MAY_CLAIM_IN(m, k, t) ((t) > LOWEST(m) && (t) <= LAST_CLAIM(m) && MAY_GRANT(k, m, life[m], t, false, VERSION(m)))
#define NEXT(m, k) (MAX(LOWEST(m), highest[k]) + 1)
#ifdef CLAIM_NEWER_LIST
#define ABOVE(m, k) (FIRST(2) + 1)
#else
#define ABOVE(m, k) (BLOCK_END(NEXT(m, k)) + 1)
#endif
#define CLAIM(k) \
	:: atomic { MAY_CLAIM(m) && ASKS(m, k) && (MAY_CLAIM_IN(m, k, NEXT(m, k)) || MAY_CLAIM_IN(m, k, ABOVE(m, k))) -> \
		if \
		:: MAY_CLAIM_IN(m, k, ABOVE(m, k)) -> t = ABOVE(m, k) \
		:: NEXT(m, k) < ABOVE(m, k) && MAY_CLAIM_IN(m, k, NEXT(m, k)) -> t = NEXT(m, k) \
		fi; \
		claims++; role[m] = CANDIDATE; term[m] = t; t = 0; \
		REQUEST_FROM(k) }
#ifdef AVAILABLE
/* A claim needs no grants. No process uses a term twice. */
#define CLAIM_ALONE \
	:: atomic { MAY_CLAIM(m) && LOWEST(m) < LAST(VERSION(m)) -> \
		if \
		:: t = LOWEST(m) + 1 \
		:: ABOVE(m, m) <= LAST(VERSION(m)) -> t = ABOVE(m, m) \
		fi; \
		token_fell = BIT(used[m], t); \
		assert(!token_fell); \
		used[m] = used[m] | (1 << t); claims++; highest[m] = t; reserved[m] = NEEDED(m, t); t = 0 }
#undef CLAIM
#define CLAIM(k)
#else
#define CLAIM_ALONE
#endif
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
		d_step { grant(k, m, life[m], term[m], role[m] == HOLDER, VERSION(m)); skip }; \
		if \
		:: d_step { grants[(m) * N + (k)] = COUNTED(m, k); count(m) FORGET_LEASE; skip } \
		:: k != m && lost < LOST -> lost++ FORGET_LEASE \
		:: LATE > 0 && k != m && late_kind == 0 -> \
			late_kind = ANSWER; late_from = k; late_to = m; late_life = life[m]; late_term = term[m]; late_left = HOLD \
		fi

#define GRANTS(m, k) (expiry[k] > 0 && SAME(k, m, life[m]))
#define IGNORED(m) !(GRANTS(m, 0) || GRANTS(m, 1) || GRANTS(m, 2) FOURTH(|| GRANTS(m, 3)))

/* The operator counts a member as departed DEPARTURE_WAIT after its pod is gone, or has another state directory. */
#define OPERATE(k) \
	if \
	:: LISTS > 1 && documents < DOCUMENTS && IN(1, k) && !BIT(departed[documents - 1], k) && missing[k] == 0 \
		&& (gone[k] && (!PROOF_NEEDED || process[k] == ENDED) \
		|| identity[k] != entry1[k] && (entry1[k] != UNKNOWN || documents > 1)) -> missing[k] = 1 + DEPARTURE_WAIT \
	:: else \
	fi; \
	if \
	:: missing[k] == 1 && documents > 1 -> missing[k] = 0; departed[documents] = departed[documents - 1] | (1 << k); documents++ \
	:: else \
	fi;

/* Adopt a newer document. */
#define ADOPT(d) \
	:: d_step { d < documents && process[m] == UP && document[m] < d -> \
		if \
		:: VERSION(m) == 1 && role[m] == CANDIDATE -> stop(m) \
		:: VERSION(m) == 1 && role[m] == HOLDER -> clear_grants(m) \
		:: else \
		fi; \
		document[m] = d; \
		if \
		:: VERSION(m) == 2 -> reserved[m] = MAX(reserved[m], FIRST(2) + BLOCK) \
		:: else \
		fi }

proctype member(byte m) {
	byte t;
#if SHORT
	byte requested, lent;		/* the lease of a request, and of the answer */
#endif
	do
	CLAIM_ALONE
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
		if
		:: granted_life[m] == life[granted_to[m]] && BIT(given_up[granted_to[m]], granted_term[m]) -> release(m)
		:: else
		fi }
#endif
#if SHORT
	:: d_step { BIT(SHORTER, m) && !shorter[m] && process[m] == UP -> shorter[m] = 1; longer_left[m] = PROMISE }
#endif
	ADOPT(1) ADOPT(2) ADOPT(3) ADOPT(4)
	/* A crash and a restart without memory, except for the adopted list and the reservation. */
	:: d_step { process[m] == UP && restarts < RESTARTS && BIT(RESTARTING, m) ->
		restarts++;
		if
		:: OUTLIVES -> outlived[m] = MAX(outlived[m], tenure[m])
		:: else
		fi;
		forget(m); life[m]++;
		quiet[m] = WAIT(m); highest[m] = STORED(m);
		FORGET_CLAIMS(m)
		if
		:: VERSION(m) < LISTS -> older_expiry[m] = WAIT(m)
		:: else
		fi }
#if LOSSES
	/* The state directory is lost. The next process has another one, and nothing to remember. */
	:: d_step { process[m] == UP && losses < LOSSES && BIT(LOSING, m) ->
		losses++;
		if
		:: OUTLIVES -> outlived[m] = MAX(outlived[m], tenure[m])
		:: else
		fi;
		forget(m); life[m]++; identity[m]++; document[m] = 0;
		quiet[m] = 0; highest[m] = 0; reserved[m] = BLOCK; older_expiry[m] = 0;
		OPERATE(m) skip }
#endif
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
		d_step { grant(m, late_from, late_life, late_term, late_held, late_version); skip };
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

/* Publish the second list with the identities of all connected agents, and bind identities that a list doesn't name yet. */
#if LOSSES || UNBOUND
#define BIND(k) \
	:: d_step { documents == 1 && BIT(UNBOUND, k) && BINDABLE(entry1[k], k) -> entry1[k] = identity[k] }
#define PUBLISH \
	:: d_step { documents == 1 && LISTS > 1 -> documents = 2; \
		for (i : 0 .. N - 1) { entry2[i] = identity[i] } \
		OPERATE(0) OPERATE(1) OPERATE(2) FOURTH(OPERATE(3)) skip }
#else
#define BIND(k)
#define PUBLISH
#endif

proctype network_and_time() {
	do
	PUBLISH
	BIND(0) BIND(1) BIND(2)
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
	entry1[m] = (BIT(UNBOUND, m) -> UNKNOWN : 0); reserved[m] = (IN(1, m) -> 0 : FIRST(2)) + BLOCK; \
	SETUP_REST(m)

init {
	atomic {
		SETUP(0) SETUP(1) SETUP(2) FOURTH(SETUP(3))
		run member(0); run member(1); run member(2);
		FOURTH(run member(3);)
		run network_and_time()
	}
}
