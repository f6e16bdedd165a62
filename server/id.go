package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
)

const maxIDs = 10_000 // of one request

// order is what a request for ids asks for.
type order struct {
	pool   string
	one    bool // no number was given
	n      int
	format snowflake.Format
	style  snowflake.Style
}

func (s *Server) snowflakes(c echo.Context) error {
	asked, err := s.idOrder(c)
	if err != nil {
		return err
	}
	ids := make([]snowflake.ID, asked.n)
	origin, err := s.stamper.Stamp(c.Request().Context(), asked.pool, ids)
	if err != nil {
		return err
	}
	asked.style.Layout, asked.style.Epoch = origin.Layout, origin.Epoch
	last := ids[len(ids)-1] // the largest: if it can be written, all can
	text, err := asked.format.Append(nil, last, asked.style)
	if err != nil && asked.format == snowflake.Padded {
		return invalid("width", fmt.Sprintf("too narrow: the pool's ids have %d digits now", len(last.String())))
	}
	if err != nil {
		return err
	}
	fresh(c)
	if wantsText(c) {
		c.Response().Header().Set(echo.HeaderContentType, echo.MIMETextPlainCharsetUTF8)
		c.Response().WriteHeader(http.StatusOK)
		return asked.write(c.Response(), ids, "", "\n", "\n")
	}
	head := `{"pool":"` + asked.pool + `","worker_id":` + strconv.Itoa(origin.WorkerID) // a name needs no quoting
	if asked.one {
		head += `,"id":"` + string(text) + `"`
	}
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	return asked.write(c.Response(), ids, head+`,"ids":["`, `","`, `"]}`+"\n")
}

func (s *Server) idOrder(c echo.Context) (asked order, err error) {
	if asked.pool, err = s.idPool(c); err != nil {
		return asked, err
	}
	if err := body(c, &struct{}{}); err != nil {
		return asked, err
	}
	n, err := queryInt(c, "n", 1, 1, maxIDs)
	if err != nil {
		return asked, err
	}
	asked.n, asked.one = int(n), !c.QueryParams().Has("n")
	if asked.format, err = queryFormat(c); err != nil {
		return asked, err
	}
	width, err := queryInt(c, "width", 0, 1, snowflake.MaxWidth)
	if err == nil && width > 0 && asked.format != snowflake.Padded {
		err = invalid("width", "only with format=padded")
	}
	asked.style.Width = int(width)
	return asked, err
}

// idPool is the pool that the path names, or the default one.
func (s *Server) idPool(c echo.Context) (string, error) {
	if strings.HasSuffix(c.Path(), "/:pool") {
		return name(c, "pool")
	}
	if s.config.IDPool == "" {
		return "", &fault{wire.NotFound, "pool", "this server has no default pool; name one: /id/snowflake/{pool}"}
	}
	return s.config.IDPool, nil
}

func queryFormat(c echo.Context) (snowflake.Format, error) {
	text := c.QueryParam("format")
	format, err := snowflake.ParseFormat(text)
	if err != nil || text == "" && c.QueryParams().Has("format") {
		return "", invalid("format", "one of "+strings.Trim(fmt.Sprint(snowflake.Formats()), "[]"))
	}
	return format, nil
}

const chunk = 8 << 10 // bytes that are written at once

// write sends ids as they are formatted, so that many of them need no large body.
func (o order) write(to io.Writer, ids []snowflake.ID, head, between, tail string) (err error) {
	text := append(make([]byte, 0, chunk), head...)
	for i, id := range ids {
		if i > 0 {
			text = append(text, between...)
		}
		if text, err = o.format.Append(text, id, o.style); err != nil {
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
