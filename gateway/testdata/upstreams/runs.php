<?php
// How often the payment ran, by key, in a file: PHP keeps nothing from one request to the next.
function pay(string $key): void
{
    file_put_contents(getenv('RUNS'), $key . "\n", FILE_APPEND | LOCK_EX);
    http_response_code(201);
    echo 'paid';
}

function take(): object
{
    $lines = file_exists(getenv('RUNS')) ? file(getenv('RUNS'), FILE_IGNORE_NEW_LINES) : [];
    file_put_contents(getenv('RUNS'), '');
    return (object) array_count_values($lines);
}
