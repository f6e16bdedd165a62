<?php
// A service that is a script: PHP runs it for every path below its own as well.
require dirname(realpath(__FILE__)) . '/runs.php';
pay($_SERVER['HTTP_IDEMPOTENCY_KEY'] ?? '');
