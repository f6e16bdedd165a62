package server

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

const (
	maxIDs   = 10_000 // of one request
	idMemory = 64     // of each id, as a number and as text
)

// order is what a request for ids asks for.
type order struct {
	one    bool // no number was given
	n      int
	format snowflake.Format
	style  snowflake.Style
	opaque *number.Opaque // in the place of format and style; nil = those
}

// ids are the handlers of /id.
type ids struct {
	stamper  *stamper.Stamper
	pools    *workerlease.Pools
	segments *segment.Segments
	stored   *redissource.Source // under the segments; nil = they come from elsewhere
	metrics  *metrics.Service
	journal  *journal
	pool     string               // the default one; "" = there is none
	keys     []idempotency.Secret // make ids opaque, the newest first
}

func (h *ids) routes(at *router) {
	at.use.handle("GET /id/snowflake", "snowflake.Stamp", smallPrice, h.snowflakes, handsOut, allowQuery("n", "format", "width", "spread"))
	at.use.handle("GET /id/snowflake/:pool", "snowflake.Stamp", smallPrice, h.snowflakes, handsOut,
		allowQuery("n", "format", "width", "spread"))
	at.use.handle("GET /id/segment/:tag", "segment.NextN", smallPrice, h.fromSegment, handsOut, allowQuery("n", "format", "width"))
	at.admin.handle("PUT /id/segment/:tag", "counter.Set", smallPrice, h.setSegment, no)
	at.use.handle("GET /id/uuid", "", smallPrice, h.uuids, handsOut, allowQuery("n", "version"))
	at.use.handle("GET /id/ulid", "", smallPrice, h.ulids, handsOut, allowQuery("n"))
	at.use.handle("GET /id/typeid", "", smallPrice, h.typeIDs, handsOut, allowQuery("n", "prefix"))
	// of a ring where a pool is named
	at.read.handle("GET /id/decode/:id", "workerlease.Ring", smallPrice, h.decode,
		allowQuery("format", "pool", "layout", "epoch", "datacenter", "tag", "key"))
}

func (h *ids) snowflakes(r *request) error {
	pool := h.poolOf(r)
	asked := idOrder(r)
	asked.read(r, snowflake.Formats())
	stamp := h.stamper.Stamp
	if has(r, "spread") && !r.flag("spread") {
		stamp = h.stamper.StampFromZero
	}
	if r.err != nil {
		return r.err
	}
	ids := make([]snowflake.ID, asked.n)
	origin, err := stamp(r.ctx(), pool, ids)
	if err != nil {
		return err
	}
	h.metrics.IDs("snowflake", len(ids))
	asked.style.Layout, asked.style.Epoch = origin.Layout, origin.Epoch
	// the largest: if it can be written, all can
	if err := asked.check(ids[len(ids)-1], "the pool's ids"); err != nil {
		return err
	}
	// a name needs no quoting
	head := `{"pool":"` + pool + `","worker_id":` + strconv.Itoa(origin.WorkerID)
	return asked.send(r, head, func(dst []byte, i int) ([]byte, error) { return asked.format.Append(dst, ids[i], asked.style) })
}

// poolOf is the pool that the path names, or the default one.
func (h *ids) poolOf(r *request) string {
	if strings.HasSuffix(r.Path(), "/:pool") {
		return r.name("pool")
	}
	if h.pool == "" {
		r.fail(&fault{api.NotFound, "pool", "this server has no default pool; name one: /id/snowflake/{pool}"})
	}
	r.mayTouch("pool", h.pool)
	return h.pool
}

func idOrder(r *request) (asked order) {
	r.noFields()
	n := r.int("n", 1, 1, maxIDs)
	if r.err == nil && n > 1 {
		r.fail(frontdoor.Reserve(r.ctx(), n*idMemory))
	}
	asked.n, asked.one = int(n), !has(r, "n")
	return asked
}

// read reads how they are to be written.
func (o *order) read(r *request, formats []snowflake.Format, others ...string) {
	o.format = formatOf(r, formats, others...)
	width := r.int("width", 0, 1, snowflake.MaxWidth)
	if width > 0 && o.format != snowflake.FormatPadded {
		r.invalid("width", "only with format="+strings.Join(append([]string{string(snowflake.FormatPadded)}, others...), " or format="))
	}
	o.style.Width = int(width)
}

// check reports whether the largest id can be written.
func (o *order) check(largest snowflake.ID, whose string) error {
	var err error
	narrow := o.opaque != nil && int64(largest) > o.opaque.Max()
	if o.opaque == nil {
		_, err = o.format.Append(nil, largest, o.style)
		narrow = err != nil && o.format == snowflake.FormatPadded
	}
	if narrow {
		return invalid("width", fmt.Sprintf("too narrow: %s have %d digits now", whose, len(largest.String())))
	}
	return err
}

// formatOf reads a format from the query, one of some; the route's others do not apply here.
func formatOf(r *request, formats []snowflake.Format, others ...string) snowflake.Format {
	if !has(r, "format") {
		return snowflake.FormatDecimal
	}
	format := snowflake.Format(r.QueryParam("format"))
	if !slices.Contains(formats, format) {
		names := strings.Trim(fmt.Sprint(formats), "[]")
		r.invalid("format", "one of "+strings.Join(append([]string{names}, others...), " "))
	}
	return format
}

// send answers with ids, one a line for a client that asked for text. text appends the i-th. The
// head is a JSON object as far as the ids.
func (o *order) send(r *request, head string, text func(dst []byte, i int) ([]byte, error)) error {
	noStore(r)
	if wantsText(r) {
		r.Response().Header().Set(echo.HeaderContentType, echo.MIMETextPlainCharsetUTF8)
		r.Response().WriteHeader(http.StatusOK)
		return writeIDs(r.Response(), o.n, text, "", "\n", "\n")
	}
	if o.one {
		one, err := text(nil, 0)
		if err != nil {
			return err
		}
		head = withMember(head) + `"id":"` + string(one) + `"`
	}
	r.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	r.Response().WriteHeader(http.StatusOK)
	return writeIDs(r.Response(), o.n, text, withMember(head)+`"ids":["`, `","`, `"]}`+"\n")
}

// withMember continues a JSON object with one more member.
func withMember(head string) string {
	if head == "{" {
		return head
	}
	return head + ","
}

const chunk = 8 << 10 // bytes that are written at once

// writeIDs sends ids as they are formatted, so that many of them need no large body.
func writeIDs(to io.Writer, n int, next func(dst []byte, i int) ([]byte, error), head, between, tail string) (err error) {
	text := append(make([]byte, 0, chunk), head...)
	for i := range n {
		if i > 0 {
			text = append(text, between...)
		}
		if text, err = next(text, i); err != nil {
			return err
		}
		if len(text) < chunk-2*snowflake.MaxWidth {
			continue
		}
		if _, err := to.Write(text); err != nil {
			return err
		}
		text = text[:0]
	}
	_, err = to.Write(append(text, tail...))
	return err
}
