package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
)

// decodeID takes an id apart. It says nothing of whether the id was ever handed out.
func (s *Server) decodeID(c echo.Context) error {
	if err := body(c, &struct{}{}); err != nil {
		return err
	}
	if c.QueryParam("format") == opaqueFormat {
		return s.decodeOpaque(c)
	}
	if err := notOpaque(c); err != nil {
		return err
	}
	style, err := s.decodeStyle(c)
	if err != nil {
		return err
	}
	id, err := idOfPath(c, style)
	if err != nil {
		return err
	}
	parts := style.Layout.Decode(id, style.Epoch)
	if parts.Time.Year() > lastYear {
		return invalid("id", fmt.Sprintf("of a time after the year %d in layout %v since %s", lastYear, style.Layout, style.Epoch.Format(time.RFC3339)))
	}
	datacenter, err := queryInt(c, "datacenter", int64(parts.Datacenter), 0, 1<<style.Layout.Datacenter-1)
	if err != nil {
		return err
	}
	if datacenter != int64(parts.Datacenter) {
		return invalid("datacenter", fmt.Sprintf("the id is of datacenter %d", parts.Datacenter))
	}
	noStore(c)
	if wantsText(c) {
		return c.String(http.StatusOK, fmt.Sprintf("%d\n%d\n%d\n%d\n", parts.Time.UnixMilli(), parts.Worker, parts.Datacenter, parts.Sequence))
	}
	return c.JSON(http.StatusOK, wire.DecodedID{
		ID: id.String(), Time: parts.Time, WorkerID: parts.Worker, Datacenter: parts.Datacenter, Sequence: parts.Sequence,
		Layout: style.Layout.String(), Epoch: style.Epoch,
	})
}

// lastYear is the last that RFC 3339 can write.
const lastYear = 9999

// idOfPath reads the id in the format that the query says.
func idOfPath(c echo.Context, style snowflake.Style) (snowflake.ID, error) {
	format, err := queryFormat(c, snowflake.Formats(), opaqueFormat)
	if err != nil {
		return 0, err
	}
	escaped, err := segmentOf(c, "id")
	if err != nil {
		return 0, err
	}
	text, err := url.PathUnescape(escaped)
	if err != nil {
		return 0, invalid("id", "not percent-encoded as it should be")
	}
	style.Width = len(text)
	id, err := format.Parse(text, style)
	if err != nil {
		return 0, invalid("id", "not an id in format "+string(format))
	}
	if most := style.Layout.Max(); id > most {
		return 0, invalid("id", fmt.Sprintf("the largest of layout %s is %s", style.Layout, most))
	}
	return id, nil
}

// decodeStyle finds layout and epoch: those of the query, of the pool that it names, of the default
// pool if this server has stamped with it, or the defaults.
func (s *Server) decodeStyle(c echo.Context) (style snowflake.Style, err error) {
	query := c.QueryParams()
	if query.Has("pool") {
		if query.Has("layout") || query.Has("epoch") {
			return style, invalid("pool", "a pool has its own layout and epoch: name it, or them")
		}
		return s.poolStyle(c, query.Get("pool"))
	}
	style.Layout, style.Epoch = snowflake.MustLayout(snowflake.DefaultLayout), snowflake.DefaultEpoch
	if origin, ok := s.stamper.Origin(s.config.IDPool); ok && !query.Has("layout") && !query.Has("epoch") {
		style.Layout, style.Epoch = origin.Layout, origin.Epoch
	}
	if query.Has("layout") {
		if style.Layout, err = snowflake.ParseLayout(query.Get("layout")); err != nil {
			return style, invalid("layout", strings.TrimPrefix(err.Error(), "snowflake: "))
		}
	}
	epoch, err := queryTime(c, "epoch")
	if !epoch.IsZero() {
		style.Epoch = epoch
	}
	return style, err
}

func (s *Server) poolStyle(c echo.Context, pool string) (style snowflake.Style, err error) {
	if !names.Valid(pool) {
		return style, &fault{wire.InvalidName, "pool", nameRule}
	}
	if err := mayTouch(c, "pool", pool); err != nil {
		return style, err
	}
	if origin, ok := s.stamper.Origin(pool); ok {
		return snowflake.Style{Layout: origin.Layout, Epoch: origin.Epoch}, nil
	}
	ring, err := s.pools.Ring(c.Request().Context(), pool, 0, 1)
	if err != nil {
		return style, err
	}
	style.Layout, err = snowflake.ParseLayout(ring.Layout)
	style.Epoch = ring.Epoch
	return style, err
}
