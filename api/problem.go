package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Code names a kind of problem. Codes are part of the outside contract.
type Code string

// The codes. The catalogue, which Lookup reads, has their meanings.
const (
	InvalidRequest     Code = "invalid-request"
	InvalidName        Code = "invalid-name"
	KeyMissing         Code = "idempotency-key-missing"
	KeyMalformed       Code = "idempotency-key-malformed"
	Unauthorized       Code = "unauthorized"
	Forbidden          Code = "forbidden"
	NotFound           Code = "not-found"
	MethodNotAllowed   Code = "method-not-allowed"
	InProgress         Code = "idempotency-in-progress"
	IdempotencyUnknown Code = "idempotency-outcome-unknown"
	AttemptRunning     Code = "attempt-running"
	NotInDoubt         Code = "not-in-doubt"
	Superseded         Code = "idempotency-superseded"
	PayloadMismatch    Code = "idempotency-payload-mismatch"
	AnswerConditional  Code = "idempotency-answer-conditional"
	TokenUnknown       Code = "idempotency-token-unknown"
	OperationUnknown   Code = "operation-unknown"
	NotAnInteger       Code = "not-an-integer"
	CounterOverflow    Code = "counter-overflow"
	CounterLimit       Code = "counter-limit"
	CounterBehind      Code = "counter-behind"
	CounterPermanent   Code = "counter-permanent"
	CounterBack        Code = "counter-back"
	PreconditionFailed Code = "precondition-failed"
	LayoutMismatch     Code = "layout-mismatch"
	PermitsMismatch    Code = "permits-mismatch"
	WrongType          Code = "wrong-type"
	LockHeld           Code = "lock-held"
	LeaseLost          Code = "lease-lost"
	PoolExhausted      Code = "pool-exhausted"
	PoolQuarantined    Code = "pool-quarantined"
	PoolExists         Code = "pool-exists"
	LayoutUsedUp       Code = "layout-used-up"
	PayloadTooLarge    Code = "payload-too-large"
	TooManyRequests    Code = "too-many-requests"
	LimitReached       Code = "limit-reached"
	// UnsupportedEncoding refuses a compressed body.
	UnsupportedEncoding Code = "unsupported-encoding"
	StoreUnavailable    Code = "store-unavailable"
	// StoreUnsuitable refuses what a Redis cannot do right, now or later.
	StoreUnsuitable Code = "store-unsuitable"
	// StoreNewer refuses records that a newer version has written.
	StoreNewer     Code = "store-newer"
	OutcomeUnknown Code = "outcome-unknown"
	// UpstreamUnavailable is a problem of the gateway alone.
	UpstreamUnavailable Code = "upstream-unavailable"
	// RouteUnknown and PathNotPlain are refusals of the gateway alone.
	RouteUnknown Code = "route-unknown"
	PathNotPlain Code = "path-not-plain"
	// Overloaded refuses requests while those under way use all the memory that they may.
	Overloaded    Code = "overloaded"
	InternalError Code = "internal-error"
)

// Kind is what all problems of one code have in common.
type Kind struct {
	Status    int
	Title     string
	Retryable bool   // whether the same request may succeed later, and repeating it does no harm
	Help      string // what happened, and what to try
}

var catalogue = map[Code]Kind{
	InvalidRequest: {400, "The request is not valid", false, "Nothing was done. The detail names the field and what it may hold."},
	InvalidName: {400, "The name is not valid", false,
		"Nothing was done. Names have 1 to 200 characters of A–Z a–z 0–9 . _ : ~ @ - and are percent-decoded exactly once."},
	KeyMissing: {400, "An idempotency header is missing", false,
		"The handler did not run. Get a token with POST /token and send it as Idempotency-Token, or send a key of your own as " +
			"Idempotency-Key, as the route's policy says."},
	KeyMalformed: {400, "The idempotency header is malformed", false,
		"The handler did not run. An Idempotency-Key is one RFC 8941 string of 1 to 255 characters, with or without its quotes; an " +
			"Idempotency-Token is one token as POST /token gave it. Send one of them, once."},
	Unauthorized: {401, "Who is asking is not known", false,
		"Nothing was done. Show an API key, as Authorization: Bearer cck_… or as X-API-Key, or a client certificate that the " +
			"service knows."},
	Forbidden: {403, "Refused", false,
		"Nothing was done. The detail says what is missing: a role, or the right to use that name. Ask the operator of the service " +
			"for a key that has it. Refused, too, are a browser that asks ahead of its user or for a page of another origin, and a " +
			"request under a name that is none of the service's: --cors-origins and --allowed-hosts name those that are good."},
	NotFound:         {404, "There is nothing here", false, "Nothing has that name, or that path; GET / lists what there is."},
	MethodNotAllowed: {405, "The path does not take this method", false, "The Allow header lists the methods that it takes."},
	InProgress: {409, "The first attempt is still running", true,
		"The handler did not run again. Ask again after Retry-After: the answer of the first attempt will be there, or the truth " +
			"about it."},
	IdempotencyUnknown: {409, "The outcome of the first attempt is unknown", false,
		"The first attempt began and ended without an answer. It may have had its effect: look at the effect itself before you " +
			"start a new operation with a new token."},
	AttemptRunning: {409, "An attempt may still be running", true,
		"Nothing was changed. The attempt's lease has not ended, so it may still record its own answer. Ask again after " +
			"Retry-After, if the operation is in doubt then."},
	NotInDoubt: {409, "The operation is not in doubt", false,
		"Nothing was changed. The operation has its answer, or its token may be used again; there is nothing to settle."},
	Superseded: {409, "Another attempt has replaced this one", false,
		"This attempt was silent for longer than its lease and another took over. Ask again with the same token for that one's answer."},
	PayloadMismatch: {422, "The token or key was used for another request", false,
		"Nothing was done. The same token or key came with another method, path, query, payload or scope, or with another value of a header " +
			"that the route's policy names. Use one for one operation."},
	AnswerConditional: {409, "The recorded answer is to a request with a Range or a condition", false,
		"Nothing was done. The operation is done, and its answer is a part of a body (206) or none (304). Send the Range or the condition " +
			"of the first request again for that answer."},
	TokenUnknown: {410, "The token is unknown", false,
		"Nothing was done. It was never issued, has expired, or was lost with the store's state. If its operation may have run, " +
			"look at the effect before you get a new token with POST /token."},
	OperationUnknown: {410, "The operation is unknown", false,
		"Nothing was done. It has never begun under this name, has expired, or was lost with the store's state; or it is another " +
			"caller's. If it may have run, look at its effect before it runs again."},
	NotAnInteger: {409, "The counter does not hold an integer", false,
		"Nothing was changed. The value in Redis is not a signed 64-bit decimal integer. Find out what else writes that key, or " +
			"count under another name."},
	CounterOverflow: {409, "The counter would overflow", false,
		"Nothing was changed. A counter ends at 9223372036854775807, or where the template has no more digits. Count under another " +
			"name, or with a template that has more."},
	CounterLimit: {409, "The counter would pass the limit", false,
		"Nothing was changed. The request sets a limit, and the counter would come past it. What is counted is used up, until the " +
			"counter ends or is set back."},
	CounterBehind: {409, "The counter has gone back, or may have", false,
		"Nothing was changed. This service is set to refuse such a counter, or past all that may have been lost it would have no " +
			"number left that the template, or the opaque ids, can be. Find out what was handed out, and set it past that: PUT " +
			"/counter/{key}, for a tag of segments PUT /id/segment/{tag}."},
	CounterPermanent: {409, "The counter has no end", false,
		"Nothing was changed. A TTL counts only for the call that begins a counter: whoever begins it decides whether it ends. Leave " +
			"ttl_ms out, or have an operator set the counter with one: PUT /counter/{key}."},
	CounterBack: {409, "The counter is past that value", false,
		"Nothing was changed. Set to a smaller value the counter hands values out again. To do that on purpose: back=true."},
	PreconditionFailed: {412, "A precondition is false", false,
		"Nothing was changed. What the path names is not as If-Match or If-None-Match says. Read it again, and decide anew."},
	LayoutMismatch: {409, "Laid out differently", false,
		"Nothing was granted. Layout, epoch, datacenter and TTL are fixed by a pool's first grant; leave them out to take the " +
			"pool's own."},
	PermitsMismatch: {409, "The lock has another number of permits", false,
		"Nothing was granted. A lock's number of permits is fixed while it has a holder. Send the number that the others send, or " +
			"take another name."},
	WrongType: {409, "The key holds another kind of value", false,
		"Nothing was changed. A key of that name in Redis holds another kind of value than this service keeps there. Find out what " +
			"else writes it, or take another name."},
	LockHeld: {409, "The lock is held by others", true,
		"The lock was not obtained in the time that the request was willing to wait. Ask again, and wait longer with wait_ms: those " +
			"who wait are served in order."},
	LeaseLost: {410, "The lease is no longer yours", false,
		"It has ended, was released, or never was yours. Stop using what it stood for and acquire anew."},
	PoolExhausted: {503, "Every worker id of the pool is taken", true,
		"Ask again after Retry-After, when the first slot can be free."},
	PoolQuarantined: {503, "Nothing is granted yet", true,
		"State may have been lost, or nothing is known here of what was handed out before. Nothing is granted until everything that " +
			"may be in use has ended, or every process has said what it has seen; ask again after Retry-After. If a worker-id pool " +
			"is new, declare it so: coatcheck worker create, or PUT /worker/{pool}."},
	PoolExists: {409, "The pool is there already", false,
		"Nothing was changed. It has granted worker ids, or was declared before; the detail says what it is. Use it as it is, or " +
			"take another name."},
	LayoutUsedUp: {503, "The pool's layout has no timestamps left", false,
		"Nothing was done. No id of that layout can have the present time, for good. Take another pool, or have an operator give " +
			"this one a wider timestamp: coatcheck worker create --replace."},
	PayloadTooLarge: {413, "The body is too large", false, "Nothing was done. The detail says the limit; send less at once."},
	UnsupportedEncoding: {415, "The body is encoded in a way that is not read here", false,
		"Nothing was done. Bodies are read as they come: send this one without compression, and without Content-Encoding."},
	TooManyRequests: {429, "Asked too often", true,
		"Nothing was done. Ask again after Retry-After, and not more often than the RateLimit-Policy header says. Without that " +
			"header too much is under way at once: send fewer requests at a time, and ask for pages of a list one after the other."},
	LimitReached: {429, "The limit is reached", true,
		"Nothing was taken. Ask again after Retry-After; retry_after_ms has the same to the millisecond, and remaining is what a " +
			"smaller cost could still take."},
	StoreUnsuitable: {503, "The store is not suitable", false,
		"Nothing was done. This Redis cannot show what the promise rests on; the detail names the fact, and the setting that does " +
			"without it. Asking again does not help: the operator has to change the Redis or the setting. Tokens and locks do not " +
			"need it."},
	StoreNewer: {503, "The store was written by a newer version", false,
		"Nothing was done. A record in Redis is in a newer format than this version of coatcheck knows; the detail names its kind, " +
			"both formats, and the version to install. Asking again does not help: the operator has to install that version " +
			"wherever this one still serves."},
	StoreUnavailable: {503, "The store is not available", true,
		"Nothing was done. Redis cannot be reached, is loading, is read-only or refuses writes. Ask again after Retry-After."},
	OutcomeUnknown: {503, "The outcome is unknown", false,
		"The write may or may not have happened, or too few replicas have confirmed it. With a token or key, ask again with the " +
			"same one; else look before you repeat."},
	UpstreamUnavailable: {503, "The service behind the gateway is not available", true,
		"Nothing was done: no byte of the request has reached the service. A token or key is as it was before."},
	RouteUnknown: {404, "No route names this request", false,
		"Nothing was done: no byte of the request has reached the service. The gateway passes on requests that can change something " +
			"only if its routes file names their method and path. If the request is right, its operator adds a route; the detail has the line."},
	PathNotPlain: {400, "The path is not written plainly", false,
		"Nothing was done: no byte of the request has reached the service. Services read some paths in several ways, so the gateway " +
			"takes one spelling: no dot segments, no two slashes together, no control characters, no ; and nothing percent-encoded that " +
			"needs no encoding. The detail says what is wrong."},
	Overloaded: {503, "As much is under way as fits into memory", true, "Nothing was done. Ask again after Retry-After."},
	InternalError: {500, "Something went wrong here", false,
		"The fault is the service's, and what was done is not known: look before you repeat. Its log has the request id, which " +
			"belongs into a report."},
}

// Lookup returns what a code stands for.
func Lookup(code Code) (Kind, bool) {
	kind, ok := catalogue[code]
	return kind, ok
}

// Codes lists all codes in the order of the alphabet.
func Codes() []Code { return slices.Sorted(maps.Keys(catalogue)) }

// Problem is an RFC 9457 problem with the members that every answer of this service has.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Instance  string `json:"instance,omitempty"`
	Code      Code   `json:"code"`
	Retryable bool   `json:"retryable"`
	Field     string `json:"field,omitempty"` // the part of the request that is wrong
	See       string `json:"see,omitempty"`   // where to read on: a route's policy, a token's state

	// since when a lock is held, or an operation is in doubt
	Since Time `json:"since,omitzero"`
	// the name of an operation in doubt, by which an operator finds it
	Operation string `json:"operation,omitempty"`

	// of a limit that is reached, as in [LimitTaken]; with the exact wait
	Allowed      *bool  `json:"allowed,omitempty"`
	Remaining    *int   `json:"remaining,omitempty"`
	ResetMs      *int64 `json:"reset_ms,omitempty"`
	RetryAfterMs *int64 `json:"retry_after_ms,omitempty"`

	RetryAfter time.Duration `json:"-"` // 0 = not known
}

// NewProblem returns a problem of a known code. Without a detail it has the help of its kind, and
// it has a wait if its state passes. An unknown code is a programmer's mistake and gives an
// internal error.
func NewProblem(code Code, detail string) Problem {
	kind, ok := catalogue[code]
	if !ok {
		code, kind = InternalError, catalogue[InternalError]
	}
	detail = cmp.Or(detail, kind.Help)
	problem := Problem{
		Type: "/problems/" + string(code), Title: kind.Title, Status: kind.Status, Detail: detail, Code: code,
		Retryable: kind.Retryable,
	}
	switch code {
	case StoreUnavailable, UpstreamUnavailable, Overloaded:
		problem.RetryAfter = soon
	}
	return problem
}

// soon is the default wait after a refusal because of a state that passes.
const soon = time.Second

// SetRetryAfter sets the header Retry-After, in whole seconds rounded up, if the wait is known.
func (p Problem) SetRetryAfter(header http.Header) {
	if p.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
}

// Write answers with the problem. Its instance is the request id in the answer's X-Request-Id.
func (p Problem) Write(w http.ResponseWriter) {
	header := w.Header()
	if id := header.Get("X-Request-Id"); id != "" {
		p.Instance = "urn:request:" + id
	}
	p.SetRetryAfter(header)
	header.Set("Content-Type", "application/problem+json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Del("Content-Length")
	// RFC 9110, section 11.6.1, wants one
	if p.Status == http.StatusUnauthorized && header.Get("WWW-Authenticate") == "" {
		header.Set("WWW-Authenticate", `Bearer realm="coatcheck"`)
	}
	w.WriteHeader(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		return // strings, numbers and booleans always marshal
	}
	_, _ = w.Write(append(body, '\n')) // the client may have hung up
}
