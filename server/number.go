package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/number"
)

const (
	maxNumbers = 1000           // of one request
	maxApart   = 24 * time.Hour // of the moment that a number is of, from now
	// how long a period's counter is kept after its end: longer than any caller can add to it.
	keptBehind = 48 * time.Hour
)

// numbering is the counter that a request adds to, and the form of its values.
type numbering struct {
	key      string
	template *number.Template // nil = not at all
	at       time.Time        // the moment that they are of, in the zone of the request
	limited  bool             // by the request itself, no further than the template goes
}

// numbering reads template, calendar, zone and at, and sets how long the increment's counter is
// kept. Without template and calendar the counter is the one that the path names.
func (h *counters) numbering(r *request, key string, asked *counter.Request) (n numbering) {
	if !has(r, "template") && !has(r, "calendar") {
		r.without("only with template or calendar", "zone", "at")
		return numbering{key: key}
	}
	r.without(fmt.Sprintf("not with template or calendar: the counter of a period is kept until %v after its end", keptBehind), "ttl_ms")
	zone, now := h.zone(r), h.now()
	n.at = moment(r, now).In(zone)
	limit := asked.Limit
	n.template = templateOf(r, asked)
	n.limited = limit > 0 && asked.Limit == limit
	if r.err != nil {
		return n
	}
	period := n.count(r, key)
	r.mayTouch("key", n.key)
	if !period.Until.IsZero() {
		asked.TTL = (period.Until.Sub(now) + keptBehind).Truncate(time.Millisecond)
	}
	return n
}

// count finds the counter: that of the calendar's period, or of the template's, or the one for ever
// if neither has a date.
func (n *numbering) count(r *request, key string) (period number.Period) {
	if has(r, "calendar") {
		return n.countBy(r, r.QueryParam("calendar"), key)
	}
	n.key = key
	period, err := n.template.Period(n.at, n.at.Location())
	if err != nil {
		r.invalid("at", says(err))
	}
	if period.Label != "" {
		n.key += ":" + period.Label
	}
	if !names.Valid(n.key) {
		r.invalid("template", names.Printable(n.key)+" would be the counter, which is no name; say which counters there are to be "+
			"with calendar, such as {yyyyMMdd}, or take a shorter key")
	}
	return period
}

func (n *numbering) countBy(r *request, calendar, key string) (period number.Period) {
	if _, err := number.ParseCalendarKey(calendar, nil); err != nil {
		r.invalid("calendar", says(err))
		return period
	}
	named, err := number.ParseCalendarKey(key+":"+calendar, n.at.Location())
	if err != nil {
		r.fail(&fault{api.InvalidName, "key", "too long: with the calendar it is a name of more than 200 characters"})
		return period
	}
	if n.template != nil {
		if err := n.template.Fits(named); err != nil {
			r.invalid("template", says(err))
		}
	}
	n.key, period, err = named.At(n.at)
	if err != nil {
		r.invalid("at", says(err))
	}
	return period
}

// says is the text of an error of package number without the package's name.
func says(err error) string { return strings.TrimPrefix(err.Error(), "number: ") }

// templateOf reads the template, nil if there is none, and has the counter stop where it ends.
func templateOf(r *request, asked *counter.Request) *number.Template {
	if !has(r, "template") {
		return nil
	}
	template, err := number.ParseTemplate(r.QueryParam("template"))
	if err != nil {
		r.invalid("template", says(err))
		return nil
	}
	if asked.By > maxNumbers {
		r.invalid("by", fmt.Sprintf("1 to %d with a template", maxNumbers))
	}
	if most := template.Max(); asked.Limit == 0 || most < asked.Limit {
		asked.Limit = most // which also keeps it from what is below 0
	}
	return &template
}

// zoneForm keeps the names of one zone few.
var zoneForm = lazyregexp.New(`^[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}$`)

// zone reads the zone whose calendar counts; UTC if none is given.
func (h *counters) zone(r *request) *time.Location {
	text := r.QueryParam("zone")
	if !has(r, "zone") {
		return time.UTC
	}
	if known, ok := h.zones.Load(text); ok {
		return known.(*time.Location)
	}
	var zone *time.Location
	if zoneForm().MatchString(text) && text != "Local" {
		zone, _ = time.LoadLocation(text) // nil beside an error
	}
	if zone == nil {
		r.invalid("zone", names.Printable(text)+" is no time zone; write a name of the IANA database such as Europe/Berlin, or UTC")
		return time.UTC
	}
	h.zones.Store(text, zone)
	return zone
}

// moment reads the time that a number belongs to, by default now. A time far from now is refused:
// its counter may be gone, and would begin again.
func moment(r *request, now time.Time) time.Time {
	at := r.time("at")
	if at.IsZero() {
		return now
	}
	if now.Sub(at).Abs() > maxApart {
		r.invalid("at", fmt.Sprintf("within %v of now", maxApart))
	}
	return at
}

// refused is the error of an addition. A value that the template cannot write is an overflow, also
// where the request has a limit beyond it.
func (n *numbering) refused(err error) error {
	if n.template == nil || !errors.Is(err, counter.ErrLimit) || n.limited {
		return err
	}
	return fmt.Errorf("%w%s", number.ErrWidth, strings.TrimPrefix(err.Error(), counter.ErrLimit.Error()))
}

// send answers with the values, and with the template's numbers for them.
func (n *numbering) send(r *request, got counter.Range) error {
	values := api.Incremented{Key: n.key, Value: got.Last, First: got.First}
	if n.template == nil {
		return r.number(got.Last, values)
	}
	for value := got.First; ; value++ {
		text, err := n.template.Format(value, n.at)
		if err != nil {
			return fmt.Errorf("number: the counter came to %d, which the template cannot write: %w", value, err)
		}
		values.Numbers = append(values.Numbers, text)
		if value == got.Last {
			break
		}
	}
	if wantsText(r) {
		noStore(r)
		return r.String(http.StatusOK, strings.Join(values.Numbers, "\n")+"\n")
	}
	if len(values.Numbers) == 1 {
		values.Number, values.Numbers = values.Numbers[0], nil
	}
	return r.answer(http.StatusOK, values)
}
