package embedded

import "strings"

// write is a command that may change data. Its functions take the arguments after its name.
type write struct {
	keys  func(args []string) []string // the keys it may change
	makes bool                         // it may make a key
	life  bool                         // it changes nothing but the key's expiry
}

// writes are the commands that may change data. The store refuses one that is neither here, nor in
// bystanders, nor read-only to miniredis: its clock and its caps would not know what it changes.
var writes = map[string]write{
	"APPEND":      {keys: first, makes: true},
	"BITOP":       {keys: second, makes: true},
	"DECR":        {keys: first, makes: true},
	"DECRBY":      {keys: first, makes: true},
	"DEL":         {keys: all},
	"EXPIRE":      {keys: first, life: true},
	"EXPIREAT":    {keys: first, life: true},
	"GETDEL":      {keys: first},
	"GETEX":       {keys: first, life: true},
	"GETSET":      {keys: first, makes: true},
	"INCR":        {keys: first, makes: true},
	"INCRBY":      {keys: first, makes: true},
	"INCRBYFLOAT": {keys: first, makes: true},
	"MSET":        {keys: everySecond, makes: true},
	"MSETNX":      {keys: everySecond, makes: true},
	"PERSIST":     {keys: first, life: true},
	"PEXPIRE":     {keys: first, life: true},
	"PEXPIREAT":   {keys: first, life: true},
	"PSETEX":      {keys: first, makes: true},
	"RENAME":      {keys: firstTwo},
	"RENAMENX":    {keys: firstTwo},
	"SET":         {keys: first, makes: true},
	"SETBIT":      {keys: first, makes: true},
	"SETEX":       {keys: first, makes: true},
	"SETNX":       {keys: first, makes: true},
	"SETRANGE":    {keys: first, makes: true},
	"UNLINK":      {keys: all},

	"HDEL":         {keys: first},
	"HINCRBY":      {keys: first, makes: true},
	"HINCRBYFLOAT": {keys: first, makes: true},
	"HMSET":        {keys: first, makes: true},
	"HSET":         {keys: first, makes: true},
	"HSETNX":       {keys: first, makes: true},

	"LINSERT":   {keys: first},
	"LMOVE":     {keys: firstTwo, makes: true},
	"LPOP":      {keys: first},
	"LPUSH":     {keys: first, makes: true},
	"LPUSHX":    {keys: first},
	"LREM":      {keys: first},
	"LSET":      {keys: first},
	"LTRIM":     {keys: first},
	"RPOP":      {keys: first},
	"RPOPLPUSH": {keys: firstTwo, makes: true},
	"RPUSH":     {keys: first, makes: true},
	"RPUSHX":    {keys: first},

	"SADD":  {keys: first, makes: true},
	"SMOVE": {keys: firstTwo, makes: true},
	"SPOP":  {keys: first},
	"SREM":  {keys: first},

	"ZADD":             {keys: first, makes: true},
	"ZINCRBY":          {keys: first, makes: true},
	"ZPOPMAX":          {keys: first},
	"ZPOPMIN":          {keys: first},
	"ZREM":             {keys: first},
	"ZREMRANGEBYLEX":   {keys: first},
	"ZREMRANGEBYRANK":  {keys: first},
	"ZREMRANGEBYSCORE": {keys: first},
}

// bystanders neither read nor change data.
var bystanders = map[string]bool{
	"AUTH": true, "CLIENT": true, "CLUSTER": true, "COMMAND": true, "ECHO": true, "HELLO": true, "PING": true, "PSUBSCRIBE": true,
	"PUBLISH": true,
	"PUBSUB":  true, "PUNSUBSCRIBE": true, "QUIT": true, "SCRIPT": true, "SUBSCRIBE": true, "TIME": true, "UNSUBSCRIBE": true, "WAIT": true,
}

// reads reports whether a command is one of miniredis's that only read. Streams are not: XREAD may
// block, and the rest is not counted.
func (s *Store) reads(name string) bool {
	return s.redis.IsReadOnlyCommand(name) && !strings.HasPrefix(name, "X") && !strings.HasPrefix(name, "PF")
}

func all(args []string) []string      { return args }
func first(args []string) []string    { return args[:min(1, len(args))] }
func firstTwo(args []string) []string { return args[:min(2, len(args))] }
func second(args []string) []string   { return args[min(1, len(args)):min(2, len(args))] }

func everySecond(args []string) []string {
	var found []string
	for i := 0; i < len(args); i += 2 {
		found = append(found, args[i])
	}
	return found
}
