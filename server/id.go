package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/snowflake"
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

func (s *Server) snowflakes(c echo.Context) error {
	pool, err := s.idPool(c)
	if err != nil {
		return err
	}
	asked, err := idOrder(c)
	if err != nil {
		return err
	}
	if err := asked.read(c, snowflake.Formats()); err != nil {
		return err
	}
	ids := make([]snowflake.ID, asked.n)
	origin, err := s.stamper.Stamp(c.Request().Context(), pool, ids)
	if err != nil {
		return err
	}
	s.metrics.IDs("snowflake", len(ids))
	asked.style.Layout, asked.style.Epoch = origin.Layout, origin.Epoch
	// the largest: if it can be written, all can
	if err := asked.check(ids[len(ids)-1], "the pool's ids"); err != nil {
		return err
	}
	// a name needs no quoting
	head := `{"pool":"` + pool + `","worker_id":` + strconv.Itoa(origin.WorkerID)
	return sendIDs(c, asked, head, func(dst []byte, i int) ([]byte, error) { return asked.format.Append(dst, ids[i], asked.style) })
}

// idOrder reads how many ids are asked for.
func idOrder(c echo.Context) (asked order, err error) {
	if err := body(c, &struct{}{}); err != nil {
		return asked, err
	}
	n, err := queryInt(c, "n", 1, 1, maxIDs)
	asked.n, asked.one = int(n), !has(c, "n")
	if err == nil && n > 1 {
		err = frontdoor.Reserve(c.Request().Context(), n*idMemory)
	}
	return asked, err
}

// read reads how they are to be written.
func (o *order) read(c echo.Context, formats []snowflake.Format, others ...string) (err error) {
	if o.format, err = queryFormat(c, formats, others...); err != nil {
		return err
	}
	width, err := queryInt(c, "width", 0, 1, snowflake.MaxWidth)
	if err == nil && width > 0 && o.format != snowflake.Padded {
		err = invalid("width", "only with format="+strings.Join(append([]string{string(snowflake.Padded)}, others...), " or format="))
	}
	o.style.Width = int(width)
	return err
}

// check reports whether the largest id can be written.
func (o *order) check(largest snowflake.ID, whose string) error {
	if o.opaque != nil {
		if int64(largest) > o.opaque.Max() {
			return invalid("width", fmt.Sprintf("too narrow: %s have %d digits now", whose, len(largest.String())))
		}
		return nil
	}
	_, err := o.format.Append(nil, largest, o.style)
	if err != nil && o.format == snowflake.Padded {
		return invalid("width", fmt.Sprintf("too narrow: %s have %d digits now", whose, len(largest.String())))
	}
	return err
}

// idPool is the pool that the path names, or the default one.
func (s *Server) idPool(c echo.Context) (string, error) {
	if strings.HasSuffix(c.Path(), "/:pool") {
		return name(c, "pool")
	}
	if s.config.IDPool == "" {
		return "", &fault{wire.NotFound, "pool", "this server has no default pool; name one: /id/snowflake/{pool}"}
	}
	return s.config.IDPool, mayTouch(c, "pool", s.config.IDPool)
}

// queryFormat reads a format from the query, one of some. The others are formats too that the route
// knows and this does not.
func queryFormat(c echo.Context, formats []snowflake.Format, others ...string) (snowflake.Format, error) {
	text := c.QueryParam("format")
	if !has(c, "format") {
		return snowflake.Decimal, nil
	}
	for _, format := range formats {
		if text == string(format) {
			return format, nil
		}
	}
	names := strings.Trim(fmt.Sprint(formats), "[]")
	return "", invalid("format", "one of "+strings.Join(append([]string{names}, others...), " "))
}

// sendIDs answers with ids, one a line for a client that asked for text. text appends the i-th. The
// head is a JSON object as far as the ids.
func sendIDs(c echo.Context, asked order, head string, text func(dst []byte, i int) ([]byte, error)) error {
	noStore(c)
	if wantsText(c) {
		c.Response().Header().Set(echo.HeaderContentType, echo.MIMETextPlainCharsetUTF8)
		c.Response().WriteHeader(http.StatusOK)
		return writeIDs(c.Response(), asked.n, text, "", "\n", "\n")
	}
	if asked.one {
		one, err := text(nil, 0)
		if err != nil {
			return err
		}
		head += `,"id":"` + string(one) + `"`
	}
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	return writeIDs(c.Response(), asked.n, text, head+`,"ids":["`, `","`, `"]}`+"\n")
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
