"""What users name on the command line and in files: rules, models, data, their own code."""

from dendrax.named._named import Named as Named
from dendrax.named._named import call_named as call_named
from dendrax.named._named import check_keys as check_keys
from dendrax.named._named import check_settings as check_settings
from dendrax.named._named import digest_of as digest_of
from dendrax.named._named import find_named as find_named
from dendrax.named._named import find_rule as find_rule
from dendrax.named._named import read_named as read_named
from dendrax.named._user_code import BadInput as BadInput
from dendrax.named._user_code import attribute_of as attribute_of
from dendrax.named._user_code import ended as ended
from dendrax.named._user_code import imported as imported
from dendrax.named._user_code import rules as rules
from dendrax.named._user_code import told as told
from dendrax.named._user_code import users_line as users_line
