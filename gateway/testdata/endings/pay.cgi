#!/bin/sh
# A payment as a CGI program, and what can go wrong in it.
tell() { curl --silent "$BOOK/$1/$HTTP_IDEMPOTENCY_KEY"; }

cat >/dev/null
tell begun
case $HTTP_X_EVENT in
killed) kill -9 $$ ;;
slow) tell wait ;;
esac
printf 'Status: 201\r\nContent-Type: text/plain\r\n\r\nhalf of it, '
if [ "$HTTP_X_EVENT" = part ]; then kill -9 $$; fi
tell ended
echo and the rest
