package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/textid"
	"github.com/coatcheck/coatcheck/snowflake"
)

// decode takes an id apart. It does not know whether the id was ever handed out.
func (h *ids) decode(r *request) error {
	r.noFields()
	if r.err == nil && r.QueryParam("format") == opaqueFormat {
		return h.decodeOpaque(r)
	}
	if format := r.QueryParam("format"); r.err == nil && (format == textid.ULID || format == textid.TypeID) {
		return h.decodeText(r, format)
	}
	r.without("only with format=opaque", "tag", "key")
	style := h.style(r)
	id := idOfPath(r, style)
	if r.err != nil {
		return r.err
	}
	parts := style.Layout.Decode(id, style.Epoch)
	if parts.Time.Year() > lastYear {
		r.invalid("id", fmt.Sprintf("of a time after the year %d in layout %v since %s", lastYear, style.Layout,
			style.Epoch.Format(time.RFC3339)))
	}
	if r.int("datacenter", int64(parts.Datacenter), 0, 1<<style.Layout.Datacenter-1) != int64(parts.Datacenter) {
		r.invalid("datacenter", fmt.Sprintf("the id is of datacenter %d", parts.Datacenter))
	}
	if r.err != nil {
		return r.err
	}
	if wantsText(r) {
		noStore(r)
		return r.String(http.StatusOK, fmt.Sprintf("%d\n%d\n%d\n%d\n", parts.Time.UnixMilli(), parts.Worker, parts.Datacenter, parts.Sequence))
	}
	return r.answer(http.StatusOK, api.DecodedID{
		ID: id.String(), Time: api.At(parts.Time), WorkerID: parts.Worker, Datacenter: parts.Datacenter, Sequence: parts.Sequence,
		Layout: style.Layout.String(), Epoch: api.At(style.Epoch),
	})
}

// lastYear is the last that RFC 3339 can write.
const lastYear = 9999

// idOfPath reads the id in the format that the query says.
func idOfPath(r *request, style snowflake.Style) snowflake.ID {
	format := formatOf(r, snowflake.Formats(), opaqueFormat, textid.ULID, textid.TypeID)
	text, err := url.PathUnescape(r.segment("id"))
	if err != nil {
		r.invalid("id", "not percent-encoded as it should be")
	}
	if r.err != nil {
		return 0
	}
	style.Width = len(text)
	id, err := format.Parse(text, style)
	if err != nil {
		r.invalid("id", "not an id in format "+string(format))
	}
	if most := style.Layout.Max(); id > most {
		r.invalid("id", fmt.Sprintf("the largest of layout %s is %s", style.Layout, most))
	}
	return id
}

// style returns layout and epoch: the query's, those of the pool that it names, of the default pool
// if this server has stamped with it, or the defaults.
func (h *ids) style(r *request) (style snowflake.Style) {
	query := r.QueryParams()
	if query.Has("pool") {
		if query.Has("layout") || query.Has("epoch") {
			r.invalid("pool", "a pool has its own layout and epoch: name it, or them")
		}
		return h.poolStyle(r, query.Get("pool"))
	}
	style.Layout, style.Epoch = snowflake.MustLayout(snowflake.DefaultLayout), snowflake.DefaultEpoch
	if origin, ok := h.stamper.Origin(h.pool); ok && !query.Has("layout") && !query.Has("epoch") {
		style.Layout, style.Epoch = origin.Layout, origin.Epoch
	}
	if query.Has("layout") {
		var err error
		if style.Layout, err = snowflake.ParseLayout(query.Get("layout")); err != nil {
			r.invalid("layout", strings.TrimPrefix(err.Error(), "snowflake: "))
		}
	}
	if epoch := r.time("epoch"); !epoch.IsZero() {
		style.Epoch = epoch
	}
	return style
}

func (h *ids) poolStyle(r *request, pool string) (style snowflake.Style) {
	if !names.Valid(pool) {
		r.fail(&fault{api.InvalidName, "pool", nameRule})
	}
	r.mayTouch("pool", pool)
	if r.err != nil {
		return style
	}
	if origin, ok := h.stamper.Origin(pool); ok {
		return snowflake.Style{Layout: origin.Layout, Epoch: origin.Epoch}
	}
	ring, err := h.pools.Ring(r.ctx(), pool, 0, 1)
	if err != nil {
		r.fail(err)
		return style
	}
	style.Epoch = ring.Epoch
	style.Layout, err = snowflake.ParseLayout(ring.Layout)
	r.fail(err)
	return style
}
