<?php
// A payment in PHP, and what can go wrong in it.
function tell(string $what): void
{
    file_get_contents(getenv('BOOK') . "/$what/" . $_SERVER['HTTP_IDEMPOTENCY_KEY']);
}

function half(): void
{
    http_response_code(201);
    echo 'half of it';
    while (ob_get_level() > 0) {
        ob_end_flush();
    }
    flush();
}

function too_much(): void
{
    ini_set('memory_limit', '4M');
    str_repeat('x', 1 << 24);
}

tell('begun');
switch ($_SERVER['HTTP_X_EVENT'] ?? '') {
    case 'killed':
        posix_kill(getmypid(), 9);
    case 'slow':
        tell('wait');
        break;
    case 'thrown':
        throw new Exception('no money');
    case 'memory':
        too_much();
    case 'after': // a part of the answer
        half();
        too_much();
    case 'part':
        half();
        posix_kill(getmypid(), 9);
}
http_response_code(201);
echo 'paid';
tell('ended');
