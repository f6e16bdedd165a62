package main

import "strings"

// reasons say, by section, what holds the figures of targets that are not met, which the rows that
// are only shown measure, and what was tried in vain.
var reasons = map[string]string{
	"redis": "Commands are the smaller part of a script: of a claim's 27 µs they take 7, of the bare script's 12 they take 4, and a script " +
		"with a claim's arguments that only gives its answer takes 4. The rest is Lua, which decides. A first request, and the claim of " +
		"an issued token, put a record of 22 words together and list it by the end of its lease and of its record, where the bare script " +
		"writes a text that it was given and one entry: ZADD takes 4.0 µs for 1.9. A heartbeat and an operator's answer take such a " +
		"record apart, put it together again, and move both entries. A lock's release has four commands that the bare one lacks: it " +
		"looks for a queue, and keeps the fence. Its renewal, and passing it on, read the lock's last grant word by word; passing on " +
		"also looks which waiters still live, with five commands more. Counters, ranges of ids and worker ids compare the server that INFO " +
		"names with the server that the marker, the counter or the pool names: the bare scripts read the same texts and compare " +
		"nothing. A limit computes with microseconds. Tried: definitions that only some runs need are made there, and nowhere else, which " +
		"took a claim and complete from 2.5 of the bare ones to 1.7 to 2.0; texts of fewer words would drop what an operator is shown.",
	"incr": "An answer of coatcheck has an id, a time limit, headers for browsers, a place in the log and in the counts, which the " +
		"other handlers' answers " +
		"lack; Echo's own middleware for the same costs about as much. Towards Webdis, net/http is the limit: the bare handler, which " +
		"does nothing, is about as " +
		"quick as Webdis with Redis. Tried: no time limit at all saves 4 % of a request, and metrics that are looked up once for each " +
		"route 3 % of the handler.",
	"counters": "On one key, calls that one goroutine sends over a bare connection are slower; what remains is handing a call over and " +
		"its answer back, whose " +
		"cost the row without Redis shows. On 1,000 keys nothing can be merged, and a bare connection comes little further than " +
		"AutoPipeline.",
	"locks": "A lock with a lease and a fence takes a script to lock and one to release, and two PINGs are as many round trips without " +
		"any work. redislock has " +
		"neither fence nor queue, nor a context that ends with the lease: they take the same time everywhere, so that one caller's pair " +
		"was 1.03 of redislock's where a " +
		"round trip takes 125 µs, and 1.5 where it takes 19. A token in a list, without lease and fence, is the least that passes a " +
		"lock on. " +
		"Tried: to give way to other goroutines after a pipeline of scripts made no difference in 14 rounds.",
	"limits": "A count with a TTL is one INCR, and lets twice the limit through where two spans meet. A limit that never does reads the " +
		"clock and how much is in use, and writes both; redis_rate, which does as much, takes as long for one caller. Calls of many " +
		"callers go out together.",
	"guard": "The two scripts of a first request by rueidis, with nothing around them, reach 0.78 of two PINGs with 64 clients and " +
		"0.75 with 256, and the script of a replay 0.82 and 0.74 of one PING: Redis runs scripts in that time, and nothing for " +
		"a PING. Reading and hashing the request, keeping its answer and the end of its context take the rest, on the same two " +
		"processors that Redis and the clients use. Tried: to give way after a pipeline of scripts, as with locks; a profile " +
		"has no part of it above 5 %, but collecting garbage.",
	"slots": "A script of the same commands that decides nothing grows as much with the slots: it took 1.65 and 1.59 times as long " +
		"on a million as on 1,024. A large part is commands, of which some, INFO and HLEN, prove that Redis has lost nothing, and stay. " +
		"Two scripts before these, which decided the plain " +
		"case, saved 1,024 holders half a millisecond of Redis a second, and were a second form of each decision: acquiring takes 1.7 " +
		"times as long without them, " +
		"renewing 1.3 times.",
	"size": "Of a build whose cache is empty, the standard library is the smaller part. No other module has a tenth of the source: " +
		"go-redis has 8 %, and the " +
		"exporter of traces 9 % with gRPC and protobuf.",
}

// whyNot lists the reasons for what is not met.
func whyNot(figures []figure) string {
	var text strings.Builder
	told := map[string]bool{}
	for _, f := range figures {
		if reason := reasons[f.section]; f.verdict == notMet && reason != "" && !told[f.section] {
			told[f.section] = true
			text.WriteString("\n" + wrapped("Why not, in ["+f.section+"](#"+f.section+"): "+reason) + "\n")
		}
	}
	return text.String()
}
