package server

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/number"
)

const (
	maxNumbers = 1000           // of one request
	maxApart   = 24 * time.Hour // of the moment that a number is of, from now
	// how long a period's counter is kept after its end: longer than anybody can add to it.
	keptBehind = 48 * time.Hour
)

// numbering is which counter a request adds to, and how its values are written.
type numbering struct {
	key      string
	template *number.Template // nil = not at all
	at       time.Time        // the moment that they are of, in the zone of the request
}

// numbering reads template, calendar, zone and at, and sets what they mean for the request. Without
// template and calendar the counter is the one that the path names.
func (s *Server) numbering(c echo.Context, key string, request *counter.Request) (n numbering, err error) {
	if !has(c, "template") && !has(c, "calendar") {
		for _, field := range []string{"zone", "at"} {
			if has(c, field) {
				return n, invalid(field, "only with template or calendar")
			}
		}
		return numbering{key: key}, nil
	}
	if has(c, "ttl_ms") {
		return n, invalid("ttl_ms", fmt.Sprintf("not with template or calendar: the counter of a period is kept until %v after its end", keptBehind))
	}
	zone, err := s.queryZone(c)
	if err != nil {
		return n, err
	}
	now := s.now()
	at, err := queryMoment(c, now)
	if err != nil {
		return n, err
	}
	n.at = at.In(zone)
	if n.template, err = queryTemplate(c, request); err != nil {
		return n, err
	}
	period, err := n.count(c, key)
	if err == nil {
		err = mayTouch(c, "key", n.key)
	}
	if !period.Until.IsZero() {
		request.TTL = (period.Until.Sub(now) + keptBehind).Truncate(time.Millisecond)
	}
	return n, err
}

// count finds the counter: that of the calendar's period, or of the template's, or the one for ever
// if neither has a date.
func (n *numbering) count(c echo.Context, key string) (period number.Period, err error) {
	if has(c, "calendar") {
		return n.countBy(c.QueryParam("calendar"), key)
	}
	n.key = key
	if period, err = n.template.Period(n.at, n.at.Location()); err != nil {
		return period, invalid("at", says(err))
	}
	if period.Label != "" {
		n.key += ":" + period.Label
	}
	if !names.Valid(n.key) {
		return period, invalid("template", printable(n.key)+" would be the counter, which is no name; say which counters there are to be with calendar, such as {yyyyMMdd}, or take a shorter key")
	}
	return period, nil
}

func (n *numbering) countBy(calendar, key string) (period number.Period, err error) {
	if _, err := number.ParseCalendarKey(calendar, nil); err != nil {
		return period, invalid("calendar", says(err))
	}
	named, err := number.ParseCalendarKey(key+":"+calendar, n.at.Location())
	if err != nil {
		return period, &fault{wire.InvalidName, "key", "too long: with the calendar it is a name of more than 200 characters"}
	}
	if n.template != nil {
		if err := n.template.Fits(named); err != nil {
			return period, invalid("template", says(err))
		}
	}
	n.key, period, err = named.At(n.at)
	if err != nil {
		return period, invalid("at", says(err))
	}
	return period, nil
}

// says is what an error of package number says beyond its package.
func says(err error) string { return strings.TrimPrefix(err.Error(), "number: ") }

// queryTemplate reads the template, if there is one, and has the counter stop where it ends.
func queryTemplate(c echo.Context, request *counter.Request) (*number.Template, error) {
	if !has(c, "template") {
		return nil, nil //nolint:nilnil // no template is no error
	}
	template, err := number.ParseTemplate(c.QueryParam("template"))
	if err != nil {
		return nil, invalid("template", says(err))
	}
	if request.By > maxNumbers {
		return nil, invalid("by", fmt.Sprintf("1 to %d with a template", maxNumbers))
	}
	request.Limit = template.Max() // which also keeps it from what is below 0
	return &template, nil
}

// zoneForm keeps the names of one zone few.
var zoneForm = regexp.MustCompile(`^[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}$`)

// queryZone reads the zone whose calendar counts; UTC if none is given.
func (s *Server) queryZone(c echo.Context) (*time.Location, error) {
	text := c.QueryParam("zone")
	if !has(c, "zone") {
		return time.UTC, nil
	}
	if known, ok := s.zones.Load(text); ok {
		return known.(*time.Location), nil
	}
	if !zoneForm.MatchString(text) || text == "Local" {
		return nil, unknownZone(text)
	}
	zone, err := time.LoadLocation(text)
	if err != nil {
		return nil, unknownZone(text)
	}
	s.zones.Store(text, zone)
	return zone, nil
}

func unknownZone(text string) error {
	return invalid("zone", printable(text)+" is no time zone; write a name of the IANA database such as Europe/Berlin, or UTC")
}

// queryMoment reads the moment that a number is of: now, unless the request says. One that is far
// from now is refused: its counter may be gone, and would begin again.
func queryMoment(c echo.Context, now time.Time) (time.Time, error) {
	at, err := queryTime(c, "at")
	if err != nil || at.IsZero() {
		return now, err
	}
	if apart := now.Sub(at).Abs(); apart > maxApart {
		return at, invalid("at", fmt.Sprintf("within %v of now", maxApart))
	}
	return at, nil
}

// send answers with the values, and with the numbers that they are by the template.
func (n *numbering) send(c echo.Context, got counter.Range) error {
	values := wire.Incremented{Key: n.key, Value: got.Value, First: got.First}
	if n.template == nil {
		return sendNumber(c, got.Value, values)
	}
	answer := wire.Numbered{Incremented: values}
	for value := got.First; ; value++ {
		text, err := n.template.Format(value, n.at)
		if err != nil {
			return fmt.Errorf("number: the counter came to %d, which the template cannot write: %w", value, err)
		}
		answer.Numbers = append(answer.Numbers, text)
		if value == got.Value {
			break
		}
	}
	noStore(c)
	if wantsText(c) {
		return c.String(http.StatusOK, strings.Join(answer.Numbers, "\n")+"\n")
	}
	if len(answer.Numbers) == 1 {
		answer.Number, answer.Numbers = answer.Numbers[0], nil
	}
	return c.JSON(http.StatusOK, answer)
}
