package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// CounterRequest describes an addition to a counter. The zero value adds 1.
type CounterRequest struct {
	By int64 // how many values, 1 to 1,000,000; 0 = 1
	// Limit is the largest value that the counter may come to: beyond it, and below 0, nothing is
	// added, and the answer is ErrLimit. 0 = none.
	Limit int64
	// RequestID makes the call repeatable for a day, from here or from elsewhere: the same id gets
	// the same values of the counter, and adds once. It is 1 to 255 characters of printable ASCII;
	// "" = not repeatable.
	RequestID string
	// Repeat makes Add itself ask again when no answer came or the store was not available, up to
	// half a minute, under the RequestID or one that is made for the call. It and a RequestID cost
	// speed and memory: the service does not merge such a call with others, and keeps a record of
	// it in Redis for a day.
	Repeat bool
	// TTL is how long the counter lives if this call begins it: 100 ms to 10 years; 0 = for ever. A
	// counter that is there and has no end is ErrPermanent, but for an API key of role admin, which
	// gives the end. One of a Template or Calendar with a date lives for two days longer than its
	// period, and takes no TTL.
	TTL time.Duration
	// AfterLoss is AfterLossStay for a counter with a Limit, and a TTL or a Calendar, whose values
	// nobody uses, such as one of tries: after a loss it goes on from the last value that is known,
	// instead of ErrBehind, and as many calls as were lost pass beyond the limit. All callers of
	// the counter have to say the same. "" = as the service is set.
	AfterLoss string

	// Template makes the service write each value for people, as package number does:
	// ORD-{yyyyMMdd}-{n:6}. With a date part the counter begins anew with each of its periods: its
	// key is then the requested one followed by the date, as orders:20261121. A value that does not
	// fit is ErrOverflow, and nothing is added. By is 1,000 at most with a template. "" = none.
	Template string
	// the periods with which the counter begins anew, such as {yyyy}; "" = the template's
	Calendar string
	Zone     string // whose clock has the date, such as Europe/Berlin; "" = UTC
	// the moment that has the date, within a day of now, so that a call that is repeated after
	// midnight is the same; zero = when the service is asked
	At time.Time
}

// AfterLossStay is for [CounterRequest.AfterLoss].
const AfterLossStay = "stay"

// CounterRange is the values of one call: the caller owns First to Value, both included, of Key.
type CounterRange struct {
	Key         string // the requested key, with the date appended if there is one
	First, Last int64
	Numbers     []string // with a template: each value as it is written, in order
}

// Incr adds 1 to a counter and returns the value that the caller now owns. After ErrUnknownOutcome
// ask again: lost values are a gap.
func (c *Client) Incr(ctx context.Context, key string) (int64, error) {
	got, err := c.Add(ctx, key, CounterRequest{})
	return got.Last, err
}

// IncrBy adds by, 1 to 1,000,000, to a counter and returns the values that the caller now owns.
func (c *Client) IncrBy(ctx context.Context, key string, by int64) (CounterRange, error) {
	if by == 0 {
		by = -1 // not the default
	}
	return c.Add(ctx, key, CounterRequest{By: by})
}

// Add adds to a counter as requested and returns the values that the caller now owns. The errors:
// ErrNotAnInteger, ErrOverflow, ErrLimit, ErrBehind and ErrPermanent (nothing was added);
// ErrQuarantined (values may have been lost, nothing is added for RetryAfter); ErrMismatch (the
// request id was used with another By); ErrUnavailable; ErrUnknownOutcome (values may have been
// added that no caller got: with a RequestID ask again with the same, else just ask again).
func (c *Client) Add(ctx context.Context, key string, request CounterRequest) (got CounterRange, err error) {
	request.By = cmp.Or(request.By, 1)
	if !request.Repeat {
		return c.add(ctx, key, request)
	}
	if request.RequestID == "" {
		request.RequestID = rand.Text()
	}
	err = settle(ctx, func(ctx context.Context) error {
		got, err = c.add(ctx, key, request)
		return err
	})
	return got, err
}

var requestForm = names.NewForm(" -~", 1, 255)

func (c *Client) add(ctx context.Context, key string, request CounterRequest) (CounterRange, error) {
	var added api.Incremented
	incr := call{op: "add to counter", name: key, method: http.MethodPost, path: withQuery("/incr/"+key, request.query()),
		repeat: request.RequestID, into: &added}
	switch {
	case request.By < 0:
		return CounterRange{}, incr.invalid("by is 1 to 1,000,000")
	case request.Limit < 0:
		return CounterRange{}, incr.invalid("a limit is 1 or more")
	case request.RequestID != "" && !requestForm.MatchString(request.RequestID):
		return CounterRange{}, incr.invalid("a request id has 1 to 255 characters of printable ASCII")
	}
	if err := c.onNamed(ctx, incr); err != nil {
		return CounterRange{}, err
	}
	got := CounterRange{Key: added.Key, First: added.First, Last: added.Value, Numbers: added.Numbers}
	if added.Number != "" && got.Numbers == nil {
		got.Numbers = []string{added.Number}
	}
	if !got.answers(key, request) {
		return CounterRange{}, incr.unreadable()
	}
	return got, nil
}

func (r CounterRequest) query() map[string]string {
	query := map[string]string{"after_loss": r.AfterLoss, "template": r.Template, "calendar": r.Calendar, "zone": r.Zone}
	if !r.At.IsZero() {
		query["at"] = r.At.UTC().Format(time.RFC3339Nano)
	}
	if r.By != 1 {
		query["by"] = strconv.FormatInt(r.By, 10)
	}
	if r.Limit != 0 {
		query["limit"] = strconv.FormatInt(r.Limit, 10)
	}
	if r.TTL != 0 {
		query["ttl_ms"] = strconv.FormatInt(millis(r.TTL), 10)
	}
	return query
}

// answers reports whether it is what was asked for.
func (r CounterRange) answers(key string, request CounterRequest) bool {
	dated := (request.Template != "" || request.Calendar != "") && strings.HasPrefix(r.Key, key+":")
	written := 0
	if request.Template != "" {
		written = int(request.By)
	}
	return (r.Key == key || dated) && r.First <= r.Last && r.Last-r.First+1 == request.By && len(r.Numbers) == written
}

// Counter reads a counter: the last value that was handed out, unless others are adding now. It
// changes nothing. ErrNotFound if it was never used, or has expired.
func (c *Client) Counter(ctx context.Context, key string) (int64, error) {
	get := call{op: "read counter", name: key, method: http.MethodGet, path: "/counter/" + key}
	read, err := ask(ctx, c.onNamed, get, func(read counterRead) bool { return read.Key == key && read.Value != nil })
	if err != nil {
		return 0, err
	}
	return *read.Value, nil
}

// counterRead is a counter as the service answers; without a value it is none.
type counterRead struct {
	Key   string
	Value *int64
}

// SetCounterOptions are how a counter is set. The zero value sets it forward, for good.
type SetCounterOptions struct {
	TTL time.Duration // how long it lives, 100 ms to 10 years; 0 = for ever
	// Back sets it also to a value below the counter, and in the place of a value that is no
	// integer: values may be handed out again, on purpose.
	Back bool
}

// SetCounter sets a counter to a value: the next value that is handed out is one more. Without Back
// it is ErrPast if the counter is past the value, and ErrNotAnInteger if it holds none; nothing was
// changed then. A counter that was refused with ErrBehind is in order again. Repeating it is
// harmless if no other caller adds.
func (c *Client) SetCounter(ctx context.Context, key string, value int64, options SetCounterOptions) error {
	asked := api.CounterRequest{Value: &value, TTLMs: givenMillis(options.TTL)}
	path := "/counter/" + key
	if options.Back {
		path += "?back=true"
	}
	set := call{op: "set counter", name: key, method: http.MethodPut, path: path, body: asked}
	_, err := ask(ctx, c.onNamed, set, func(now counterRead) bool { return now.Key == key && now.Value != nil && *now.Value == value })
	return err
}

// RemoveCounter removes a counter: it begins again at 1, and hands its values out again, on
// purpose. ErrNotFound if there is none.
func (c *Client) RemoveCounter(ctx context.Context, key string) error {
	return c.onNamed(ctx, call{op: "remove counter", name: key, method: http.MethodDelete, path: "/counter/" + key})
}

// Counters lists the counters whose keys begin with a prefix, in the order of their bytes, page by
// page. It ends with the first error. Those are listed that coatcheck has added to or set.
func (c *Client) Counters(ctx context.Context, prefix string) iter.Seq2[ListedCounter, error] {
	return list(ctx, c, "list counters", "/counter?n=1000", prefix,
		func(page api.Counters) ([]ListedCounter, string) { return page.Counters, page.Next })
}
