package segment

import "strings"

type leafStatements struct {
	create, probe, take, takeStep, row, insert, advance, retire, revive, list string
}

// The statements are the same in both dialects but for what stands in braces. A fetch is as Leaf's,
// with conditions under which it does nothing: a row whose numbers make no range, or one beyond
// 2^63.
const (
	leafTake = "UPDATE {table} SET max_id = {new}(max_id + step), update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND step > 0 " +
		"AND max_id >= 0 AND max_id <= 9223372036854775807 - step"
	leafTakeStep = "UPDATE {table} SET max_id = {new}(max_id + ?), update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND step > 0 AND " +
		"max_id >= 0 AND max_id <= 9223372036854775807 - ?"
	leafRowOf   = "SELECT biz_tag, max_id, step FROM {table} WHERE biz_tag = ?"
	leafProbe   = "SELECT biz_tag, max_id, step, description, update_time FROM {table} WHERE 1 = 0"
	leafInsert  = "INSERT INTO {table} (biz_tag, max_id, step, description) VALUES (?, ?, ?, ?)"
	leafAdvance = "UPDATE {table} SET max_id = ?, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND max_id < ?"
	leafRetire  = "UPDATE {table} SET step = 0, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND step <> 0"
	leafRevive  = "UPDATE {table} SET step = ?, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND step = 0"
	leafList    = "SELECT biz_tag, max_id, step, COALESCE(description, ''), {seconds} FROM {table} ORDER BY biz_tag"
)

// leafCreate is Leaf's own table. In MySQL its tags distinguish upper and lower case.
var leafCreate = map[Dialect]string{
	DialectMySQL: `CREATE TABLE IF NOT EXISTS {table} (
	biz_tag VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
	max_id BIGINT NOT NULL DEFAULT 1,
	step INT NOT NULL,
	description VARCHAR(256) CHARACTER SET utf8mb4 DEFAULT NULL,
	update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
	PRIMARY KEY (biz_tag)
) ENGINE = InnoDB`,
	DialectPostgreSQL: `CREATE TABLE IF NOT EXISTS {table} (
	biz_tag VARCHAR(128) NOT NULL DEFAULT '' PRIMARY KEY,
	max_id BIGINT NOT NULL DEFAULT 1,
	step INTEGER NOT NULL,
	description VARCHAR(256) DEFAULT NULL,
	update_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP
)`,
}

// leafWords are the other words in braces. In MySQL, LAST_INSERT_ID also remembers the new max_id
// for the client that has made it; what is read back must be the same. It differs if another taker
// could come in between, as in a MyISAM table, or if the column has cut the number off.
var leafWords = map[Dialect][]string{
	DialectMySQL:      {"{new}", "LAST_INSERT_ID", "{seconds}", "CAST(FLOOR(UNIX_TIMESTAMP(update_time)) AS SIGNED)"},
	DialectPostgreSQL: {"{new}", "", "{seconds}", "CAST(FLOOR(EXTRACT(EPOCH FROM update_time)) AS BIGINT)"},
}

func leafStatementsFor(dialect Dialect, table string) leafStatements {
	filled := strings.NewReplacer(append(leafWords[dialect], "{table}", dialect.quoted(table))...).Replace
	return leafStatements{
		create: filled(leafCreate[dialect]), probe: filled(leafProbe), take: filled(leafTake), takeStep: filled(leafTakeStep),
		row:    filled(leafRowOf),
		insert: filled(leafInsert), advance: filled(leafAdvance), retire: filled(leafRetire), revive: filled(leafRevive),
		list: filled(leafList),
	}
}
